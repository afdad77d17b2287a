"""Local SGD around a loop of the user's own: every rank takes its own steps, and every H steps all average.

The rule is that of `data_parallel.local_sgd`, with any optimizer of torch. Each rank keeps what its optimizer
remembers, as its momentum, to itself.

Cost: an all-reduce of the parameters every H steps, and two passes to collect them and to hand them out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cyclopts import Parameter

from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.data_parallel.options import OwnCollective
from farandole.own_loop.apart import Apart
from farandole.runtime.numbers import AtLeastOne, Part
from farandole.runtime.options import RunOptions
from farandole.runtime.world import World


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class LocalOptions(RunOptions):
    """The steps between two averages."""

    period: AtLeastOne = 8
    """Steps from one average to the next."""

    alpha: Part = 1.0
    """How far each rank moves to the mean; 1: all continue from it."""

    collective: OwnCollective = "ring"
    """The all-reduce that averages."""


class LocalSGD(Apart):
    """Ranks that train apart, and average their parameters."""

    name = "local_sgd"
    Options = LocalOptions

    def __init__(self, world: World, options: LocalOptions) -> None:
        super().__init__(world, options)
        self._shares: list[float] = []  # since the last average
        self._weight = 0.0  # in the last average

    def weigh(self, share: float) -> None:
        super().weigh(share)
        self._shares.append(share)

    def after(self, step: int) -> None:
        """Average, if it is time to."""
        if (step + 1) % self.options.period == 0:
            self._average(self.options.alpha)

    def finish(self, following: int) -> dict[str, Any]:
        """Replace the model by the mean of all ranks'."""
        if self._shares or self.options.alpha < 1:
            self._average(1.0)
        return self.written(following)

    def _average(self, alpha: float) -> None:
        """Move by `alpha` to the mean of all, each rank weighted by its share of the samples. Collective."""
        if self._shares:
            self._weight = sum(self._shares) / len(self._shares)
        self._shares = []
        if not self.parameters:
            return
        with self.world.communicate("average"):
            own = self.collected()
            mean = own * self._weight
            ALL_REDUCES[self.options.collective](self.world.comm, mean.numpy())
            self.hand_out(mean if alpha == 1 else own * (1 - alpha) + mean * alpha)
