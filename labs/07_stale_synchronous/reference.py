"""The project's rule in this lab's form: farandole/parameter_server/core/policies/ssp.py.

With s = 0 the project's own waits until an iteration's gradients are all there and applies their mean, so that it is
mini-batch training under momentum, too. No reader can tell the difference, and this lab applies them one by one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

Gradient = tuple[int, int]


class StaleSynchronous:
    def __init__(self, workers: Iterable[int], staleness: int) -> None:
        self.staleness = staleness
        self.completed = dict.fromkeys(workers, 0)
        self.begun = dict(self.completed)
        self.held: list[Gradient] = []

    def may_start(self, worker: int) -> bool:
        return self.completed[worker] - min(self.completed.values()) <= self.staleness

    def started(self, worker: int) -> list[Gradient]:
        self.begun[worker] += 1
        return self._due()

    def push(self, worker: int, clock: int) -> list[Gradient]:
        self.completed[worker] += 1
        self.held.append((worker, clock))
        return self._due()

    def leave(self, worker: int) -> list[Gradient]:
        del self.completed[worker], self.begun[worker]
        return self._due()

    def _due(self) -> list[Gradient]:
        fewest = min(self.begun.values(), default=math.inf)
        due = [gradient for gradient in self.held if gradient[1] - self.staleness < fewest]
        self.held = [gradient for gradient in self.held if gradient[1] - self.staleness >= fewest]
        return due
