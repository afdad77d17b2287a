"""Asynchronous: every gradient moves the parameters when it arrives, and no worker waits for another.

Each worker iterates at its own speed. While it computes a gradient, the other workers' updates move the parameters that
it was computed at. Their number is the gradient's staleness, which the record shows and nothing bounds. Sources: Recht,
Ré, Wright & Niu, "Hogwild!", 2011; Dean et al., "Large scale distributed deep networks", 2012. Documents 000 and 001.
"""

from __future__ import annotations

from farandole.parameter_server.core.policies.policy import Action, Apply, Policy, Push


class Asynchronous(Policy):
    """Gradients one by one, at once."""

    def may_start(self, worker: int) -> bool:
        return True

    def push(self, push: Push, now: float) -> list[Action]:
        self.completed(push)
        return [Apply(((push, push.share),))]
