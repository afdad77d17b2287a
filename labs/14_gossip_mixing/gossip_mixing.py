"""Lab 14: ranks that communicate only with their neighbours, and nevertheless converge to the mean of all.

Complete the six functions, then: farandole lab check 14
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from farandole_tools.lab.communicator import LabCommunicator


def metropolis(neighbours: Sequence[set[int]]) -> np.ndarray:
    """Return the Metropolis weights, with which neighbours average their vectors.

    Args:
        neighbours: for each rank, its neighbours. The graph is undirected, and no rank is its own neighbour.

    Returns:
        W, float64, of shape (ranks, ranks): W[i, j] is the weight of rank j's vector in rank i's next one. It is
        1 / (1 + the larger of the two degrees) for neighbours and 0 for other pairs. The diagonal entries make each row
        sum to 1.
    """
    raise NotImplementedError


def spectral_gap(weights: np.ndarray) -> float:
    """Return 1 minus the second largest |eigenvalue| of `weights`, a symmetric matrix; 1 for a single rank."""
    raise NotImplementedError


def one_peer(rank: int, ranks: int, number: int) -> tuple[int, int]:
    """Return the peers of `rank` in a round of the one-peer exponential graph, whose distances are 1, 2, 4, …

    Args:
        number: the number of the round, from 0 on. The distances start again at 1 when the next one would not be below
            `ranks`.

    Returns:
        The rank that `rank` sends to, and the rank that it receives from; itself if it is the only rank.
    """
    raise NotImplementedError


def mix(vector: np.ndarray, neighbours: Sequence[set[int]], comm: LabCommunicator) -> None:
    """Run one round: replace `vector` on every rank i with Σ_j W[i, j]·(rank j's vector before the round).

    Every rank calls this at the same time. A rank sends at most one message to each of its neighbours, and none to
    any other rank.

    Args:
        vector: float64, of the same length on all ranks. The result is written into it; nothing is returned.
        neighbours: those of all ranks, as in `metropolis`.
        comm: this rank's communicator:
            comm.rank, comm.size           this rank's number, and the number of ranks
            comm.send(array, to)           sends `array`; returns once rank `to` receives it
            comm.receive(array, source)    fills `array` with a message from rank `source`
            comm.exchange(send, to, receive, source)    does both at the same time, with two arrays
    """
    raise NotImplementedError


def dpsgd_step(
    vector: np.ndarray,
    gradient: Callable[[np.ndarray], np.ndarray],
    rate: float,
    neighbours: Sequence[set[int]],
    comm: LabCommunicator,
) -> None:
    """Take a step of D-PSGD: x_i ← Σ_j W[i, j]·x_j − rate·g_i, with g_i the gradient at x_i as it was before the step.

    Args:
        vector: x_i; the result is written into it.
        gradient: a function that returns the gradient of this rank's own loss at a vector, without changing the vector.
    """
    raise NotImplementedError


def push_sum_round(
    values: np.ndarray, weights: np.ndarray, hearers: Sequence[set[int]]
) -> tuple[np.ndarray, np.ndarray]:
    """Run one round of push-sum on a directed graph, for all ranks at once, in this process.

    Each rank divides its values and its weight into equal parts: one for each rank that receives from it, and one that
    it keeps. Each rank's estimate of the mean is then values / weights.

    Args:
        values: of shape (ranks, length); weights: of shape (ranks,), initially all 1. Neither is changed.
        hearers: for each rank, the ranks that it sends to.

    Returns:
        The values and the weights after the round.
    """
    raise NotImplementedError
