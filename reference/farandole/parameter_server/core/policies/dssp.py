"""Dynamic stale synchronous: a bound that follows the workers' speeds, between `low` and `high` (DSSP).

A worker up to `low` iterations ahead of the slowest may continue. When the furthest worker passes that bound, a
controller grants it r extra iterations, at most high − low. It extrapolates the pushes of both sides from the durations
of their last iterations, I for the worker and J for the slowest, and chooses r so that the last extra gradient is
pushed when the slowest worker pushes one, too:

    r = argmin over 0 ≤ r ≤ high − low of  min over k ≥ 0 of  |(now + r·I) − (first push of the slowest + k·J)|

r is counted down with each iteration. Once it is used up, the worker waits until it is no more than `low` ahead again.
So no iteration starts more than `high` ahead of the slowest, and low = high is stale synchronous.

The thresholds, the choice of r and which worker gets it are those of Zhao et al., "DSSP stale synchronous parallel
distributed training for deep learning", 2019. Three things differ:

- An iteration's duration is measured from its grant to its push. The paper's interval from push to push contains the
  time for which the policy itself held the worker: once a worker has been held, both sides seem to be equally fast.
- The controller runs once per passage of `low`. In the paper it runs again when r is used up, so that the lead has no
  bound; and whether the slowest worker's gradient came just before or just after, which the choice of r makes a
  matter of rounding, would decide between a long wait and r further iterations.
- Of several r that are equally good, to a hundredth of an iteration, the smallest is chosen: the least staleness.

Cost: O(high − low) per decision, and two times kept per worker. Documents 001 and 002.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from farandole.parameter_server.core.policies.policy import Action, Push
from farandole.parameter_server.core.policies.ssp import SSP

AS_GOOD = 0.01  # iterations: smaller differences come from the clock, not from the workers


@dataclass(slots=True)
class _Iteration:
    """The iteration that a worker began last.

    Attributes:
        granted: when it began.
        duration: of the last completed one; 0: there is none.
    """

    granted: float = 0.0
    duration: float = 0.0


class DSSP(SSP):
    """`SSP`, with a bound for the furthest worker that a controller sets between `low` and `high`."""

    def __init__(self, workers: Iterable[int], low: int = 1, high: int = 8) -> None:
        super().__init__(workers, staleness=high)
        self.low, self.high = low, high
        self._last = {worker: _Iteration() for worker in self.clocks}
        self._extra: dict[int, int] = {}  # r, of the few workers that may still start extra iterations
        self._beyond: set[int] = set()  # workers that began their last iteration beyond `low`, as an extra one
        self._furthest: int | None = None  # the first worker to reach the largest clock, unless it has left
        self._largest = 0  # its clock

    def may_start(self, worker: int) -> bool:
        return self.clocks[worker] <= self.slowest + self.low or worker in self._extra

    def started(self, worker: int, now: float) -> list[Action]:
        self._last[worker].granted = now
        if worker in self._extra:
            self._count_down(worker)
        return SSP.started(self, worker, now)

    def push(self, push: Push, now: float) -> list[Action]:
        worker, own = push.worker, self._last[push.worker]
        own.duration = now - own.granted
        if self._furthest is None:
            self._furthest = max(self.clocks, key=self.clocks.__getitem__)
            self._largest = self.clocks[self._furthest]
        actions = SSP.push(self, push, now)
        if push.clock >= self._largest:
            self._furthest, self._largest = worker, push.clock + 1
        if worker == self._furthest and self.lead(worker) > self.low and not self._is_extra(worker):
            self._grant(worker, now)
        if self._beyond:
            self._beyond.discard(worker)
        return actions

    def leave(self, worker: int) -> list[Action]:
        self._last.pop(worker, None)
        self._extra.pop(worker, None)
        self._beyond.discard(worker)
        if worker == self._furthest:
            self._furthest = None
        return super().leave(worker)

    def _is_extra(self, worker: int) -> bool:
        """Return whether `worker` has begun an extra iteration, or may begin one."""
        return worker in self._beyond or worker in self._extra

    def _grant(self, worker: int, now: float) -> None:
        """Let `worker` run as many extra iterations as the controller says."""
        if extra := self._extra_iterations(worker, now):
            self._extra[worker] = extra

    def _count_down(self, worker: int) -> None:
        """Note that `worker` starts an extra iteration, and whether it is beyond `low`."""
        if self.lead(worker) > self.low:
            self._beyond.add(worker)
        self._extra[worker] -= 1
        if not self._extra[worker]:
            del self._extra[worker]

    def _extra_iterations(self, worker: int, now: float) -> int:
        """Return how many more iterations `worker` should run before it waits for the slowest: the controller."""
        slowest = self._slowest.worker()
        assert slowest is not None, "the worker itself is there"
        own, its = self._last[worker].duration, self._last[slowest].duration
        if not own or not its:
            return 0  # one of the two durations is unknown, or 0
        first = max(now, self._last[slowest].granted + its)

        def apart(extra: int) -> float:
            """Return the seconds from the push after `extra` iterations to the slowest worker's nearest push."""
            ready = now + extra * own
            nearest = max(0, round((ready - first) / its))
            return abs(first + nearest * its - ready)

        times = [apart(extra) for extra in range(self.high - self.low + 1)]
        return next(extra for extra, time in enumerate(times) if time <= min(times) + AS_GOOD * own)
