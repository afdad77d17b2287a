"""DiLoCo around a loop of the user's own: every rank takes its own steps, and every H steps an outer step follows.

The outer step is that of `data_parallel.outer_step`; the inner optimizer is any of torch. A rank does not send its
inner optimizer's state. The outer momentum is the same on every rank.

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
from farandole.data_parallel.outer_step import Outer
from farandole.own_loop.apart import Apart
from farandole.runtime.numbers import AtLeastOne, Positive, real
from farandole.runtime.options import RunOptions
from farandole.runtime.world import World


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class DiLoCoOptions(RunOptions):
    """The steps between two outer steps, and their length."""

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
        self._outer = Outer(options.period, options.outer_lr, options.outer_momentum)
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
            self._outer.move(self._common.numpy(), self._velocity.numpy(), moved.numpy())
            self.hand_out(self._common)
