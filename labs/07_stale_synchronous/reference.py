"""The project's own policy, in this lab's form: farandole/parameter_server/policies/stale.py."""

from __future__ import annotations

from collections.abc import Iterable

from farandole.parameter_server.policies.policy import Action, Apply, Push
from farandole.parameter_server.policies.stale import Stale

Gradient = tuple[int, int]


class StaleSynchronous:
    def __init__(self, workers: Iterable[int], staleness: int) -> None:
        self.policy = Stale(workers, staleness)

    def may_start(self, worker: int) -> bool:
        return self.policy.may_start(worker)

    def started(self, worker: int) -> list[Gradient]:
        return applied(self.policy.started(worker))

    def push(self, worker: int, clock: int) -> list[Gradient]:
        return applied(self.policy.push(Push(worker, clock, share=1.0), now=0.0))

    def leave(self, worker: int) -> list[Gradient]:
        return applied(self.policy.leave(worker))


def applied(actions: list[Action]) -> list[Gradient]:
    return [(push.worker, push.clock) for action in actions if isinstance(action, Apply) for push, _ in action.parts]
