"""LARS and LAMB: a learning rate for each layer, from the layer's own norm, however long its gradient is.

A batch many times as large calls for a rate many times as high (`data_parallel.learning_rate`). But some layers have
gradients that are long beside their parameters, and diverge at such a rate, while others would bear more. Here the
layer's norm decides: with the gradient multiplied by 1,000, and without weight decay, the same parameters move by the
same amount.

LARS (You, Gitman & Ginsburg 2017) scales the gradient by a local rate, then applies momentum to the scaled steps:

    r ← θ·‖w‖ / (‖g‖ + β‖w‖)                      the local rate; θ = 0.001 is the trust coefficient, β the weight decay
    v ← μv + η·r·(g + βw)
    w ← w − v

Each past step is in the velocity with the rate and the norm of its own time. With θ = 0.001 the global rate η is large,
10 or more.

Normalised LARS (You et al. 2020, algorithm 1) and LAMB (their algorithm 2) normalise the direction *after* momentum, so
that a layer moves by the same part η of its norm in each step:

    u   the direction: of LARS the mean gradient m, of LAMB Adam's m̂ / (√v̂ + ε)
    u ← u + λw                                    decoupled weight decay
    w ← w − η·(‖w‖ / ‖u‖)·u                       for each layer by itself

A layer that is 0, or whose direction is 0, moves by θη(g + βw) in LARS, as if the two norms were equal, and by ηu in
the others. A layer here is one parameter tensor, a matrix or a bias. A rank that holds only a part of the vector cannot
compute the layers' norms, so these optimizers are for ranks that hold all of it.

Cost: two norms and one more pass over the direction. Sources: You, Gitman & Ginsburg, "Large batch training of
convolutional networks", 2017 (algorithm 1; its polynomial decay of η is a separate schedule); You et al., "Large
batch optimization for deep learning: training BERT in 76 minutes", 2020, algorithms 1 (its λ is L2's) and 2, with
φ(z) = z.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import torch
from torch import Tensor, nn

from farandole.errors import UsageError
from farandole.models import muon
from farandole.models.optimizers import OPTIMIZERS, SGD, Adam, MakeOptimizer, maker
from farandole.runtime.buffers import trained


class Lars(SGD):
    """The algorithm of 2017: `l2` is its weight decay β, which is a part of the local rate.

    Attributes:
        layers: where each of them lies in the vector.
        trust: θ.
    """

    layers: Sequence[slice] = (slice(None),)

    def __init__(
        self, values: Tensor, gradients: Tensor, lr: float, momentum: float = 0.9, trust: float = 0.001
    ) -> None:
        super().__init__(values, gradients, lr)
        self.momentum, self.trust = momentum, trust
        self.state["velocity"] = torch.zeros_like(values)

    @torch.no_grad()
    def step(self) -> None:
        for layer in self.layers:
            own, towards, velocity = self.values[layer], self.gradients[layer], self.state["velocity"][layer]
            local = own.norm() / (towards.norm() + self.l2 * own.norm())
            local = torch.where(local.isfinite() & (local > 0), local, torch.ones_like(local))
            step = towards.add(own, alpha=self.l2) * (self.lr * self.trust * local)
            own.sub_(velocity.mul_(self.momentum).add_(step))


class Normalised(SGD):
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


class NormalisedLars(Normalised):
    """The LARS of 2020, whose direction is the mean gradient with momentum."""

    def __init__(self, values: Tensor, gradients: Tensor, lr: float, momentum: float = 0.9) -> None:
        super().__init__(values, gradients, lr)
        self.momentum = momentum
        self.state["mean"] = torch.zeros_like(values)

    def _direction(self) -> Tensor:
        return self.state["mean"].lerp_(self.gradients, 1 - self.momentum)


class Lamb(Normalised, Adam):
    """LAMB, whose direction is Adam's."""

    def _direction(self) -> Tensor:
        mean, root, correction = self._moments()
        return mean / (root * correction)


LAYERWISE: dict[str, type[Lars] | type[Normalised]] = {
    "lars": Lars,
    "lars-normalised": NormalisedLars,
    "lamb": Lamb,
}


def maker_for(model: nn.Module, name: str, lr: float, l2: float = 0.0, decay: float = 0.0) -> MakeOptimizer:
    """Return the maker of the optimizer of that name, of this room, for a model's trained parameters.

    Raises:
        UsageError: decoupled weight decay is given for LARS, which has its own.
    """
    if name == "lars" and decay:
        raise UsageError("--optimizer lars has its weight decay within the local rate: give --l2, not --weight-decay")
    if name in OPTIMIZERS:
        return maker(name, lr, l2, decay)
    hidden = muon.matrices(trained(model), muon.hidden(model))
    ends = accumulate((each.numel() for each in trained(model)), initial=0)
    layers = [slice(start, stop) for start, stop in pairwise(ends)]

    def make(values: Tensor, gradients: Tensor) -> SGD:
        optimizer: SGD
        if name == "muon":
            optimizer = muon.Muon(values, gradients, lr, hidden)
        else:
            optimizer = LAYERWISE[name](values, gradients, lr)
            optimizer.layers = layers
        optimizer.l2, optimizer.decay = l2, decay
        return optimizer

    return make
