"""LARS and LAMB: every layer moves by the same part of its own length, however long its gradient is.

    u   the direction: of LARS the mean gradient m, of LAMB Adam's m̂ / (√v̂ + ε)
    u ← u + λw                                    decoupled weight decay
    w ← w − η·(‖w‖ / ‖u‖)·u                       for each layer by itself

With a batch many times as large one would like a rate many times as high (`data_parallel.learning_rate`); but some
layers have gradients that are long beside their parameters, and diverge at it, while others would bear more. Here η
says for each which part of its length it moves in a step. So the gradient's length does not matter: multiplied by 1,000
it moves the same parameters by the same. A layer that is 0, or whose direction is, moves by ηu.

A layer is a parameter here, a matrix or a bias. Who has only a piece of the vector cannot tell the layers' lengths, so
these two are for ranks that have all of it. Cost: two norms and one more pass over the direction. Sources: You, Gitman
& Ginsburg, "Large batch training of convolutional networks", 2017; You et al., "Large batch optimization for deep
learning: training BERT in 76 minutes", 2020, whose algorithms 1 (its λ is L2's) and 2 these are, with φ(z) = z.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import torch
from torch import Tensor, nn

from farandole.models.optimizers import OPTIMIZERS, SGD, Adam, MakeOptimizer, maker
from farandole.runtime.buffers import trained


class Layerwise(SGD):
    """Moves each layer by a part of its length.

    Attributes:
        layers: where each of them lies in the vector.
    """

    layers: Sequence[slice] = (slice(None),)

    def _shrink(self) -> None:
        """Nothing yet: the decay is a part of the direction."""

    def _move(self) -> None:
        direction = self._direction()
        if self.decay:
            direction = direction.add(self.values, alpha=self.decay)
        for layer in self.layers:
            own, towards = self.values[layer], direction[layer]
            ratio = own.norm() / towards.norm()
            ratio = torch.where(ratio.isfinite() & (ratio > 0), ratio, torch.ones_like(ratio))
            own.sub_(towards * (self.lr * ratio))

    def _direction(self) -> Tensor:
        raise NotImplementedError


class Lars(Layerwise):
    def __init__(self, values: Tensor, gradients: Tensor, lr: float, momentum: float = 0.9) -> None:
        super().__init__(values, gradients, lr)
        self.momentum = momentum
        self.state["mean"] = torch.zeros_like(values)

    def _direction(self) -> Tensor:
        return self.state["mean"].lerp_(self.gradients, 1 - self.momentum)


class Lamb(Layerwise, Adam):
    def _direction(self) -> Tensor:
        mean, root, correction = self._moments()
        return mean / (root * correction)


LAYERWISE: dict[str, type[Layerwise]] = {"lars": Lars, "lamb": Lamb}


def maker_for(model: nn.Module, name: str, lr: float, l2: float = 0.0, decay: float = 0.0) -> MakeOptimizer:
    """Makes the optimizer of that name, here or in `optimizers`, for the vector of a model's trained parameters."""
    if name in OPTIMIZERS:
        return maker(name, lr, l2, decay)
    ends = accumulate((each.numel() for each in trained(model)), initial=0)
    layers = [slice(start, stop) for start, stop in pairwise(ends)]

    def make(values: Tensor, gradients: Tensor) -> SGD:
        optimizer = LAYERWISE[name](values, gradients, lr)
        optimizer.l2, optimizer.decay, optimizer.layers = l2, decay, layers
        return optimizer

    return make
