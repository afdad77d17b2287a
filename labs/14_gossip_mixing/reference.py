"""The project's own, in this lab's form: farandole/decentralised/mixing.py, and the messages of exchange.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, log2

import numpy as np

from farandole.decentralised import mixing
from farandole.decentralised.steps import run
from farandole.decentralised.topologies import Topology
from farandole_tools.lab.communicator import LabCommunicator


def graph(hearers: Sequence[set[int]]) -> Topology:
    edges = frozenset((rank, other) for rank, others in enumerate(hearers) for other in others)
    return Topology("the lab's", len(hearers), (edges,))


def metropolis(neighbours: Sequence[set[int]]) -> np.ndarray:
    return mixing.mixing_matrix(graph(neighbours))


def spectral_gap(weights: np.ndarray) -> float:
    return mixing.spectral_gap(weights)


def one_peer(rank: int, ranks: int, number: int) -> tuple[int, int]:
    distance = 2 ** (number % max(1, ceil(log2(ranks))))
    return (rank + distance) % ranks, (rank - distance) % ranks


def mix(vector: np.ndarray, neighbours: Sequence[set[int]], comm: LabCommunicator) -> None:
    weights = metropolis(neighbours)[comm.rank]
    old, arriving = vector.copy(), np.empty_like(vector)
    vector *= weights[comm.rank]
    for other in sorted(neighbours[comm.rank]):  # in ascending order on all ranks: the lowest edge can always be next
        comm.exchange(old, other, arriving, other)
        vector += weights[other] * arriving


def dpsgd_step(
    vector: np.ndarray,
    gradient: Callable[[np.ndarray], np.ndarray],
    rate: float,
    neighbours: Sequence[set[int]],
    comm: LabCommunicator,
) -> None:
    move = rate * gradient(vector)
    mix(vector, neighbours, comm)
    vector -= move


def push_sum_round(
    values: np.ndarray, weights: np.ndarray, hearers: Sequence[set[int]]
) -> tuple[np.ndarray, np.ndarray]:
    both = np.hstack([values, weights[:, None]])
    after = run([mixing.pushing(graph(hearers), rank, 0) for rank in range(len(hearers))], both)
    return after[:, :-1], after[:, -1]
