"""Partial synchronous: a step takes the first k of n gradients; the late ones are dropped.

With b = n − k backup workers no step waits for the b slowest. Every gradient carries the number of
its step; one that arrives after its step is over is never applied, and its worker continues with the
step that the other workers have reached. Each step moves the parameters by the mean of exactly k gradients, or of all
that can still come when workers have left. Source: Chen et al., "Revisiting distributed synchronous
SGD", 2016. Documents 001 and 002.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from farandole.parameter_server.core.policies.policy import Action, Apply, Drop, Push, mean
from farandole.parameter_server.core.policies.quorum import Quorum


class Partial(Quorum):
    """One update per step, from the first `enough` workers."""

    def __init__(self, workers: Iterable[int], enough: int) -> None:
        super().__init__(workers, enough)
        self._arrived: dict[int, list[Push]] = defaultdict(list)  # step → its gradients so far

    def push(self, push: Push, now: float) -> list[Action]:
        self.completed(push)
        if push.clock < self.step:
            return [Drop(push)]
        # Of several servers another may be further on: then this is for a step that has not begun here.
        self._arrived[push.clock].append(push)
        return self._complete()

    def leave(self, worker: int) -> list[Action]:
        super().leave(worker)
        return self._complete()

    def _complete(self) -> list[Action]:
        actions: list[Action] = []
        while self._arrived and self._is_over():
            pushes = self._arrived.pop(self.step, [])
            if pushes:
                actions.append(Apply(mean(pushes[: self.enough])))
            actions += [Drop(late) for late in pushes[self.enough :]]
            self.step += 1
        return actions

    def _is_over(self) -> bool:
        """Return whether enough gradients of this step are in, or no worker is left that could push one more."""
        enough = len(self._arrived.get(self.step, ())) >= self.enough
        return enough or not self.clocks or self.slowest > self.step
