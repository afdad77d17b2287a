"""Lab 1: which rank trains on which samples, so that several ranks learn what one would.

Complete the four functions, then: farandole lab check 1
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def shares(samples: int, ranks: int) -> list[int]:
    """How many of the samples each rank gets.

    Rank r of K gets N // K of the N samples, and one more if r < N % K.

    Args:
        samples, ranks: N and K; 1 <= K <= N.
    """
    raise NotImplementedError


def my_rows(samples: int, rank: int, ranks: int) -> range:
    """The rows of the data set that belong to `rank`: shares lie one after the other, in rank order."""
    raise NotImplementedError


def batches(samples: int, rank: int, ranks: int, steps: int, seed: int, epoch: int, start: int = 0) -> list[np.ndarray]:
    """The batches of `rank` in one epoch, from step `start` on: arrays of row numbers.

    Over all ranks and the whole epoch every row comes exactly once. Every rank takes exactly
    `steps` steps, and its batches differ in size by at most one. The order is shuffled, in every
    epoch and for every seed in another way, and depends on nothing but the arguments: a run that
    was saved at (epoch, step) goes on with batches(…, epoch, start=step) as if never interrupted.

    Args:
        steps: at least 1, and at most the smallest share.
    """
    raise NotImplementedError


def mean_gradient(gradients: Sequence[np.ndarray], counts: Sequence[int]) -> np.ndarray:
    """The gradient of the mean loss over all ranks' samples together.

    Args:
        gradients: for each rank, the gradient of the mean loss over its own batch.
        counts: for each rank, how many samples were in that batch.
    """
    raise NotImplementedError
