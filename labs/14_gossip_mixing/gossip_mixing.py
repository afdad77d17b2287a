"""Lab 14: ranks that talk to their neighbours alone, and come to the mean of all the same.

Complete the six functions, then: farandole lab check 14
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from farandole_tools.lab.communicator import LabCommunicator


def metropolis(neighbours: Sequence[set[int]]) -> np.ndarray:
    """The weights with which neighbours mix.

    Args:
        neighbours: for each rank, its neighbours; edges lead both ways, and no rank is its own neighbour.

    Returns:
        W, float64, of shape (ranks, ranks): W[i, j] is what rank j's vector counts in rank i's next one.
        1 / (1 + the larger of the two degrees) for neighbours, 0 for others, and on the diagonal what each row lacks.
    """
    raise NotImplementedError


def spectral_gap(weights: np.ndarray) -> float:
    """1 less the second largest modulus of an eigenvalue of `weights`, which are symmetric; of a single rank 1."""
    raise NotImplementedError


def one_peer(rank: int, ranks: int, number: int) -> tuple[int, int]:
    """The one-peer exponential graph: each rank sends to one other and receives from one other, at distances 1, 2, 4, …

    Args:
        number: of the round, from 0 on. The distances begin again when the next one would not be below `ranks`.

    Returns:
        The rank that `rank` sends to, and the one that it receives from; with one rank alone, itself.
    """
    raise NotImplementedError


def mix(vector: np.ndarray, neighbours: Sequence[set[int]], comm: LabCommunicator) -> None:
    """One round: replace `vector` on every rank i by Σ_j W[i, j]·(rank j's vector before the round).

    Every rank calls this at the same time. No rank sends more than one message to each of its neighbours, and none
    to any other rank.

    Args:
        vector: float64, as long on all ranks; the result is written into it, nothing is returned.
        neighbours: of all ranks, as for `metropolis`.
        comm: this rank's connection to the others:
            comm.rank, comm.size           this rank's number, and how many ranks there are
            comm.send(array, to)           returns once rank `to` receives it
            comm.receive(array, source)    fills `array` with a message of rank `source`
            comm.exchange(send, to, receive, source)    both at the same time, with two arrays
    """
    raise NotImplementedError


def dpsgd_step(
    vector: np.ndarray,
    gradient: Callable[[np.ndarray], np.ndarray],
    rate: float,
    neighbours: Sequence[set[int]],
    comm: LabCommunicator,
) -> None:
    """A step of D-PSGD: x_i ← Σ_j W[i, j]·x_j − rate·g_i, with g_i the gradient at x_i as it was before the step.

    Args:
        vector: x_i; the result is written into it.
        gradient: of this rank's own loss, at the vector that it is given, which it does not change.
    """
    raise NotImplementedError


def push_sum_round(
    values: np.ndarray, weights: np.ndarray, hearers: Sequence[set[int]]
) -> tuple[np.ndarray, np.ndarray]:
    """One round of push-sum on a graph whose edges lead one way, for all ranks at once, in this process.

    Each rank cuts what it has, its values and its weight, into equal parts: one for each rank that receives from it,
    and one that it keeps. Each rank's estimate of the mean is then values / weights.

    Args:
        values: of shape (ranks, length); weights: of shape (ranks,), at first all 1. Neither is changed.
        hearers: for each rank, the ranks to which it sends.

    Returns:
        Values and weights after the round.
    """
    raise NotImplementedError
