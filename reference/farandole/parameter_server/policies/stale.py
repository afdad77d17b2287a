"""Stale synchronous: a worker may run ahead of the slowest by at most s iterations.

    start of iteration c:   allowed iff c − (slowest clock) ≤ s
    a gradient of c:        visible once everybody has begun iteration c − s

So whoever begins iteration c has read every gradient of iterations up to c − s − 1, and none from
more than s ahead of the slowest reader. s = 0 is mini-batch synchronous; a large s is asynchronous.
At any moment completed clocks differ by at most s + 1. A slow spell shorter than s iterations costs
the others nothing; a worker that is always slower still sets the pace in the end.

Source: Ho et al., "More effective distributed ML via a stale synchronous parallel parameter
server", 2013. Document 000.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from farandole.parameter_server.policies.policy import Action, Apply, Policy, Push, Slowest


class Stale(Policy):
    """Gradients one by one, within the bound `staleness`."""

    def __init__(self, workers: Iterable[int], staleness: int = 4) -> None:
        super().__init__(workers)
        self.staleness = staleness
        self._begun = dict(self.clocks)  # worker → iterations begun
        self._last_to_begin = Slowest(self._begun)
        self._held: dict[int, list[tuple[int, Push]]] = defaultdict(list)  # clock → number of arrival, gradient
        self._arrivals = 0

    def may_start(self, worker: int) -> bool:
        return self.lead(worker) <= self.staleness

    def started(self, worker: int, now: float) -> list[Action]:
        self._begun[worker] = self.clocks[worker] + 1
        return self._visible()

    def push(self, push: Push, now: float) -> list[Action]:
        self.clocks[push.worker] = push.clock + 1
        self._held[push.clock].append((self._arrivals, push))
        self._arrivals += 1
        return self._visible()

    def leave(self, worker: int) -> list[Action]:
        super().leave(worker)
        self._begun.pop(worker, None)
        return self._visible()

    def _visible(self) -> list[Action]:
        """In the order of their arrival."""
        if not self._held:
            return []
        reached = self._last_to_begin.clock()  # everybody has begun this many
        due = [clock for clock in self._held if reached is None or clock - self.staleness < reached]
        arrived = sorted(each for clock in due for each in self._held.pop(clock))
        return [Apply(((push, push.share),)) for _, push in arrived]
