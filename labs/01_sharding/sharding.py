"""Lab 1: divide the samples among the ranks so that they learn what a single process would learn.

Complete the four functions, then: farandole lab check 1
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def shares(samples: int, ranks: int) -> list[int]:
    """Return the number of samples of each rank, in rank order.

    Rank r of K gets N // K of the N samples, and one more if r < N % K.

    Args:
        samples, ranks: N and K; 1 <= K <= N.
    """
    raise NotImplementedError


def my_rows(samples: int, rank: int, ranks: int) -> range:
    """Return the rows of the data set that belong to `rank`. The shares are contiguous and in rank order."""
    raise NotImplementedError


def batches(samples: int, rank: int, ranks: int, steps: int, seed: int, epoch: int, start: int = 0) -> list[np.ndarray]:
    """Return the batches of `rank` in one epoch, from step `start` on, as arrays of row numbers.

    Over all ranks and the whole epoch every row occurs exactly once. Every rank takes exactly
    `steps` steps, and its batches differ in size by at most one. The order is shuffled, differently
    in every epoch and for every seed, and depends only on the arguments. So a run that was saved at
    (epoch, step) continues with batches(…, epoch, start=step) as if it had never been interrupted.

    Args:
        steps: at least 1, and at most the smallest share.
    """
    raise NotImplementedError


def mean_gradient(gradients: Sequence[np.ndarray], counts: Sequence[int]) -> np.ndarray:
    """Return the gradient of the mean loss over the samples of all ranks together.

    Args:
        gradients: for each rank, the gradient of the mean loss over its own batch.
        counts: for each rank, the number of samples in that batch.
    """
    raise NotImplementedError
