"""Stale synchronous: a worker may run ahead of the slowest by at most s iterations.

    start of iteration c:   allowed iff c − (slowest clock) ≤ s
    a gradient of c:        visible once every worker has begun iteration c − s

So a worker that begins iteration c has read every gradient of iterations up to c − s − 1, and of iterations c − s to
c + s − 1 those that have arrived: Ho et al.'s in-window updates, with the same two bounds. At any moment completed
clocks differ by at most s + 1. (Theirs differ by s; the second rule keeps the window.) A slow spell shorter than s
iterations costs the others nothing; a worker that is always slower still sets the pace in the end. A large s is
asynchronous.

s = 0 is mini-batch synchronous under every update rule: the gradients of an iteration are applied together, once all
have arrived, as their mean. (No worker reads the parameters before that.) For s > 0 each gradient is applied alone, as
it becomes visible, with its share of the batch. Ho et al.'s updates are increments that may be added in any order, as
those of plain SGD are. A rule with state then takes n small steps per iteration: momentum's velocity decays n times,
and Adagrad and Adam divide a share of the gradient by the share's own size.

Source: Ho et al., "More effective distributed ML via a stale synchronous parallel parameter server", 2013.
Document 000.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from math import inf

from farandole.parameter_server.core.policies.policy import Action, Apply, Policy, Push, Slowest, mean


class SSP(Policy):
    """Gradients one by one, within the bound `staleness`; with a bound of 0, an iteration's all together."""

    def __init__(self, workers: Iterable[int], staleness: int = 4) -> None:
        super().__init__(workers)
        self.staleness = staleness
        self._begun = dict(self.clocks)  # worker → iterations begun
        self._last_to_begin = Slowest(self._begun)
        self._due_before: float = staleness  # gradients of earlier iterations than this one are visible
        self._held: dict[int, list[tuple[int, Push]]] = defaultdict(list)  # clock → number of arrival, gradient
        self._arrivals = 0

    def may_start(self, worker: int) -> bool:
        return self.clocks[worker] <= self.slowest + self.staleness

    def started(self, worker: int, now: float) -> list[Action]:
        self._begun[worker] = self.clocks[worker] + 1
        return self._due() if worker == self._last_to_begin.witness else []

    def push(self, push: Push, now: float) -> list[Action]:
        self.completed(push)
        if self.staleness and push.clock < self._due_before:  # what is due and had arrived before has been applied
            return [Apply(((push, push.share),))]
        self._held[push.clock].append((self._arrivals, push))
        self._arrivals += 1
        return self._visible() if self.staleness == 0 else []

    def leave(self, worker: int) -> list[Action]:
        super().leave(worker)
        self._begun.pop(worker, None)
        return self._due()

    def _due(self) -> list[Action]:
        """Return the actions that are due since other workers have begun, or left."""
        reached = self._last_to_begin.clock()  # every worker has begun this many
        self._due_before = inf if reached is None else reached + self.staleness
        return self._visible()

    def _visible(self) -> list[Action]:
        """In the order of their arrival; where an iteration's count together, in the order of the workers."""
        if self.staleness == 0:
            completed = self.slowest if self.clocks else inf  # by every worker
            whole = sorted(clock for clock in self._held if clock < completed)
            return [Apply(mean(push for _, push in self._held.pop(clock))) for clock in whole]
        due = [clock for clock in self._held if clock < self._due_before]
        if not due:
            return []
        arrived = sorted(each for clock in due for each in self._held.pop(clock))
        return [Apply(((push, push.share),)) for _, push in arrived]
