"""Dynamic: stale synchronous with a bound that follows the workers' speeds, within [low, high].

A worker beyond the lower bound is not stopped at once. At each of its pushes the server foresees,
from the times of the last two pushes of it and of the slowest worker, when their next ones will
come, and lets it go on for that number r of further iterations, up to the upper bound, after which
it will have to wait least for the slowest:

    wait(r) = (first push of the slowest at or after t + r·I) − (t + r·I)

t is now and I the worker's interval between pushes. low = high is stale synchronous. Source: Zhao
et al., "Dynamic stale synchronous parallel distributed training for deep learning", 2019; ours is
the same idea, with the wait foreseen in closed form and anew at every push. Documents 001 and 002.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from farandole.parameter_server.policies.policy import Action, Push
from farandole.parameter_server.policies.stale import Stale


class Dynamic(Stale):
    """`Stale`, with each worker's own bound between `low` and `high`."""

    def __init__(self, workers: Iterable[int], low: int = 1, high: int = 8) -> None:
        super().__init__(workers, staleness=high)
        self.low, self.high = low, high
        self._bounds = dict.fromkeys(self.clocks, low)
        self._pushed: dict[int, float] = {}  # when each worker's last gradient came
        self._interval: dict[int, float] = {}  # and how long after the one before

    def may_start(self, worker: int) -> bool:
        return self.lead(worker) <= self._bounds[worker]

    def push(self, push: Push, now: float) -> list[Action]:
        worker = push.worker
        if worker in self._pushed:
            self._interval[worker] = now - self._pushed[worker]
        self._pushed[worker] = now
        actions = super().push(push, now)
        beyond = self.lead(worker) > self.low
        self._bounds[worker] = self.lead(worker) - 1 + self._worth_going_on(worker, now) if beyond else self.low
        return actions

    def leave(self, worker: int) -> list[Action]:
        for known in (self._bounds, self._pushed, self._interval):
            known.pop(worker, None)
        return super().leave(worker)

    def _worth_going_on(self, worker: int, now: float) -> int:
        """For how many more iterations `worker` should go on before it waits for the slowest."""
        slowest = self._slowest.worker()
        assert slowest is not None, "the worker itself is there"
        own, its = self._interval.get(worker, 0.0), self._interval.get(slowest, 0.0)
        if not own or not its:
            return 0

        def wait(iterations: int) -> float:
            ready = now + iterations * own
            pushes = max(1, math.ceil((ready - self._pushed[slowest]) / its))
            return max(0.0, self._pushed[slowest] + pushes * its - ready)

        return min(range(self.high - self.lead(worker) + 2), key=wait)
