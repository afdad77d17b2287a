"""The project's own fit and costs, in this lab's form: farandole/collectives/fitting.py and costs.py.

What a step waits for is computed here.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from farandole.collectives.costs import Link, Machine, predicted_s
from farandole.collectives.doubling import DOUBLING
from farandole.collectives.fitting import Measurement, fitted
from farandole.collectives.schedules import SCHEDULES
from farandole_tools.lab.communicator import LabCommunicator

SIZES = (8, 50_000, 100_000, 200_000)
REPEATS = 5


def fit(nbytes: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    # Two ranks double once: with one message each, at the same time.
    messages = [Measurement(DOUBLING, 2, n, t) for n, t in zip(nbytes, seconds, strict=True)]  # type: ignore[arg-type]
    link = fitted(messages, gamma=0.0).link
    return link.alpha, link.beta


def all_reduce_seconds(method: str, ranks: int, nbytes: int, alpha: float, beta: float) -> float:
    schedule, _ = SCHEDULES[method]
    return predicted_s(schedule, ranks, nbytes, Machine(Link(alpha, beta), gamma=0.0))


def slowest(samples: Sequence[float], ranks: int) -> float:
    # All ranks are at the k-th smallest sample or below it with probability (k/n)^P.
    below = (np.arange(len(samples) + 1) / len(samples)) ** ranks
    return float(np.sort(samples) @ np.diff(below))


def step_seconds(
    way: str, samples: Sequence[float], ranks: int, nbytes: int, alpha: float, beta: float, every: int = 1
) -> float:
    if way == "server":
        return slowest(samples, ranks) + 2 * ranks * (alpha + nbytes * beta)
    communication = all_reduce_seconds("ring", ranks, nbytes, alpha, beta)
    if way == "overlapped":  # the larger of the two for each rank, then the slowest rank
        return slowest(np.maximum(samples, communication), ranks)  # type: ignore[arg-type]
    if way == "local":
        rounds = len(samples) // every
        together = np.reshape(samples[: rounds * every], (rounds, every)).sum(axis=1)
        return (slowest(together, ranks) + communication) / every  # type: ignore[arg-type]
    return slowest(samples, ranks) + communication


def measure(comm: LabCommunicator) -> tuple[float, float]:
    if comm.rank > 1:
        return 0.0, 0.0
    there_and_back(np.zeros(1), comm)  # warm-up: the first message takes longer
    # Whatever else the machine does only adds to a time: the shortest is the nearest to the link's own.
    times = [[there_and_back(np.zeros(n // 8), comm) / 2 for _ in range(REPEATS)] for n in SIZES]
    return fit(SIZES, np.min(times, axis=1))  # type: ignore[arg-type]


def there_and_back(array: np.ndarray, comm: LabCommunicator) -> float:
    start = time.perf_counter()
    if comm.rank == 0:
        comm.send(array, 1)
        comm.receive(array, 1)
    else:
        comm.receive(array, 0)
        comm.send(array, 0)
    return time.perf_counter() - start
