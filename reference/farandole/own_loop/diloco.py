"""DiLoCo around a loop of the user's own: every rank takes its own steps, and every H steps an outer step follows.

The rule is that of `data_parallel.diloco`, with any optimizer of torch as the inner one. Each rank keeps what its
optimizer remembers to itself; the outer momentum is the same on every rank.

Cost: as `local_sgd`, and two vectors of the parameters' length.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import torch
from cyclopts import Parameter
from torch import Tensor

from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.data_parallel.options import OwnCollective
from farandole.own_loop.apart import Apart
from farandole.runtime.numbers import AtLeastOne, Positive, real
from farandole.runtime.options import RunOptions
from farandole.runtime.world import World


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class DiLoCoOptions(RunOptions):
    """How often there is an outer step, and how far it goes."""

    period: AtLeastOne = 25
    """Inner steps from one outer step to the next."""

    outer_lr: Positive = 0.7
    """Learning rate of the outer optimizer."""

    outer_momentum: Annotated[float, real(gte=0, lt=1)] = 0.9
    """Nesterov momentum of the outer optimizer."""

    collective: OwnCollective = "ring"
    """The all-reduce that forms the mean."""


class DiLoCo(Apart):
    """Ranks that train apart, and are moved together by an outer optimizer."""

    name = "diloco"
    Options = DiLoCoOptions

    def __init__(self, world: World, options: DiLoCoOptions) -> None:
        super().__init__(world, options)
        self._shares: list[float] = []  # since the last outer step
        self._common: Tensor | None = None  # the parameters after it
        self._velocity = torch.zeros(0)

    def weigh(self, share: float) -> None:
        super().weigh(share)
        self._shares.append(share)
        if self._common is None and self.parameters:
            self._common = self.collected()
            self._velocity = torch.zeros_like(self._common)

    def after(self, step: int) -> None:
        """Take an outer step, if it is time to."""
        if (step + 1) % self.options.period == 0:
            self._outer_step()

    def finish(self, following: int) -> dict[str, Any]:
        """Take the outer step of the steps since the last one."""
        if self._shares:
            self._outer_step()
        return self.written(following)

    def _outer_step(self) -> None:
        """Move by the mean of what all ranks have moved, and continue from there. Collective."""
        weight = sum(self._shares) / len(self._shares)
        self._shares = []
        if self._common is None:
            return
        with self.world.communicate("average"):
            moved = (self._common - self.collected()) * weight
            ALL_REDUCES[self.options.collective](self.world.comm, moved.numpy())
            momentum, lr = self.options.outer_momentum, self.options.outer_lr
            self._velocity.mul_(momentum).add_(moved)
            self._common.sub_(lr * (moved + momentum * self._velocity))
            self.hand_out(self._common)
