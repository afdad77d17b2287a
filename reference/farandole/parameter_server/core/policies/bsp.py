"""Bulk synchronous parallel (mini-batch synchronous): a step starts once all gradients of the last one have arrived.

The mean of all n gradients of a step moves the parameters once. Then all workers read them and start the next step.
This equals SGD in one process on the union of the workers' batches. The slowest worker sets the pace. Source: Valiant,
"A bridging model for parallel computation", 1990. Documents 000 and 004.
"""

from __future__ import annotations

from collections.abc import Iterable

from farandole.parameter_server.core.policies.policy import Action, Apply, Policy, Push, mean


class BSP(Policy):
    """One update per step, from all workers."""

    in_rounds = True
    waits_for_all = True

    def __init__(self, workers: Iterable[int]) -> None:
        super().__init__(workers)
        self._arrived: dict[int, Push] = {}
        self._missing = set(self.clocks)

    def may_start(self, worker: int) -> bool:
        return self.clocks[worker] == self.slowest

    def push(self, push: Push, now: float) -> list[Action]:
        self.completed(push)
        self._arrived[push.worker] = push
        self._missing.discard(push.worker)
        return [] if self._missing else self._complete()

    def leave(self, worker: int) -> list[Action]:
        super().leave(worker)
        self._missing.discard(worker)
        return self._complete()

    def _complete(self) -> list[Action]:
        if not self._arrived or self._missing:
            return []
        parts = mean(self._arrived.values())
        self._arrived.clear()
        self._missing = set(self.clocks)
        return [Apply(parts)]
