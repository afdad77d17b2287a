"""The steps of `partial` and `history`: a step is over once enough of the n workers' gradients are in.

Each gradient carries the number of its step. A worker that is late does not make up for the steps that it has missed:
its next iteration is of the step that the server has reached. The two policies differ in when a step ends, and in what
becomes of a gradient that arrives afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable

from farandole.parameter_server.core.policies.policy import Policy


class Quorum(Policy):
    """Counts steps, and lets a worker start whose gradient of this step is still missing.

    Attributes:
        enough: how many gradients make a quorum.
        step: the step that gradients are being collected for.
    """

    in_rounds = True

    def __init__(self, workers: Iterable[int], enough: int) -> None:
        super().__init__(workers)
        self.enough = enough
        self.step = 0

    @property
    def gate(self) -> int:
        return self.step

    def next_clock(self, worker: int) -> int:
        return self.step

    def may_start(self, worker: int) -> bool:
        return self.clocks[worker] <= self.step
