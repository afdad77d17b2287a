"""History fill: in place of a late worker's gradient the server uses the last one that it has from this worker.

Document 004's rule. A step is over when all workers' gradients are in; or, once `enough` are in, when `patience` times
the time until then has passed. The update is the mean over all workers, with a late worker's newest gradient in place
of the missing one. A gradient that arrives late is then its worker's newest, and counts from the step of its arrival
on. It is lost only if the worker's next one arrives, or the worker leaves, before that step is over. The first step
waits for all workers, since there is no history yet. Without a late worker this is mini-batch synchronous. Related
methods: SAG (Le Roux et al. 2012) remembers one gradient per sample, LAG (Chen et al. 2018) one per worker.
"""

from __future__ import annotations

from collections.abc import Iterable

from farandole.parameter_server.core.policies.policy import Action, Apply, Drop, Push, mean
from farandole.parameter_server.core.policies.quorum import Quorum


class History(Quorum):
    """One update per step, from every worker's newest gradient."""

    def __init__(self, workers: Iterable[int], enough: int, patience: float = 0.5) -> None:
        super().__init__(workers, enough)
        self.patience = patience
        self._late = set(self.clocks)  # workers without a gradient for this step
        self._newest: dict[int, Push] = {}
        self._left: list[int] = []  # workers that have left during this step
        self._began = 0.0  # when the step began; of no meaning before the first is over
        self._deadline: float | None = None

    def push(self, push: Push, now: float) -> list[Action]:
        self.completed(push)
        if push.clock >= self.step:
            self._late.discard(push.worker)
        replaced = self._newest.get(push.worker)
        self._newest[push.worker] = push
        actions = self._complete(now)
        return [Drop(replaced), *actions] if replaced else actions

    def tick(self, now: float) -> list[Action]:
        return self._complete(now)

    def leave(self, worker: int) -> list[Action]:
        """Its gradient of this step counts once. If only its gradient is missing, the next tick completes the step."""
        late = worker in self._late
        super().leave(worker)
        self._left.append(worker)
        self._late.discard(worker)
        newest = self._newest.pop(worker, None) if late else None
        return [Drop(newest)] if newest else []

    def _complete(self, now: float) -> list[Action]:
        fresh = len(self.clocks) - len(self._late)
        if self._late and (fresh < self.enough or not self._is_time(now)):
            return []
        if not self._newest:
            return []
        self.step, self._began = self.step + 1, now
        # Of several servers another may be further on: then enough may be in from the beginning.
        self._late = {worker for worker, clock in self.clocks.items() if clock <= self.step}
        enough = len(self.clocks) - len(self._late) >= self.enough
        self._deadline = now if enough else None
        parts = mean(self._newest.values())
        self._newest = {push.worker: push for push, _ in parts}  # in order, so that the next sort takes no time
        for worker in self._left:
            self._newest.pop(worker, None)
        self._left.clear()
        return [Apply(parts, keep=tuple(self._newest.values()))]

    def _is_time(self, now: float) -> bool:
        """Return whether the late have had their time, once enough are in."""
        if self.step == 0:
            return False
        if self._deadline is None:
            self._deadline = now + self.patience * (now - self._began)
        return now >= self._deadline
