"""Which parameters of a split model are divided over the ranks, and how.

The others are replicated: every rank has all of them, and their gradients come out equal, the same
bits, on every rank. For a layer norm the reason is that its output goes through
f (``exchange``), so that what comes back is the sum over all ranks; for the bias of a row
layer, that it is added to the sum. Nobody has to add up their gradients.

Who takes a norm over all parameters, or keeps one copy of each, must count the replicated ones
once: that is what `divisions` is for.
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
        """A copy of rank `rank`'s part of `whole`, of which nothing else is kept."""
        own = slices(self.shares)[rank]
        return nn.Parameter(whole.detach().narrow(self.dimension, own.start, own.stop - own.start).clone())


class Divided:
    """A layer with divided parameters.

    Attributes:
        divided: the parameter's name → how it is divided; the layer's other parameters are replicated.
    """

    divided: dict[str, Division]


def divisions(model: nn.Module) -> dict[str, Division]:
    """The divided parameters of `model`, by the names they have in ``model.named_parameters()``."""
    return {
        f"{path}.{name}" if path else name: division
        for path, layer in model.named_modules()
        if isinstance(layer, Divided)
        for name, division in layer.divided.items()
    }
