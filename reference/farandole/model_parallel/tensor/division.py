"""Which parameters of a split model are divided over the ranks, and how.

The others are replicated: every rank has all of them, and their gradients are bitwise equal on every rank, so no rank
has to add them up. The output of a layer norm passes through f (``exchange``), whose gradient is the sum over all
ranks. The bias of a row layer is added to the sum.

A norm over all parameters, or a copy of each, must count the replicated ones once; `divisions` tells which they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from farandole.data.shares import slices


@dataclass(frozen=True)
class Division:
    """A tensor cut along `dimension`: rank r has `shares[r]` of its rows."""

    dimension: int
    shares: tuple[int, ...]

    def part(self, whole: Tensor, rank: int) -> nn.Parameter:
        """Return a copy of rank `rank`'s part of `whole`, of which nothing else is kept."""
        own = slices(self.shares)[rank]
        return nn.Parameter(whole.detach().narrow(self.dimension, own.start, own.stop - own.start).clone())


class Divided:
    """A layer with divided parameters.

    Attributes:
        divided: the parameter's name → how it is divided; the layer's other parameters are replicated.
    """

    divided: dict[str, Division]


def divisions(model: nn.Module) -> dict[str, Division]:
    """Return the divided parameters of `model`, by the names they have in ``model.named_parameters()``."""
    return {
        f"{path}.{name}" if path else name: division
        for path, layer in model.named_modules()
        if isinstance(layer, Divided)
        for name, division in layer.divided.items()
    }
