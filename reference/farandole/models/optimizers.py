"""Optimizers: SGD, plain or with momentum, and Adam, on one vector of parameters.

    sgd        w ← w − ηg
    momentum   v ← μv + g;  w ← w − ηv                                    Polyak 1964
    adam       m, v: running means of g, g²;  w ← w − ηm̂ / (√v̂ + ε)       Kingma & Ba 2015

Each with weight decay (权重衰减), of one of two kinds, which pull the parameters towards 0:

    L2           g ← g + λw, before the rest: the gradient of the penalty λ/2·‖w‖² on the loss
    decoupled    w ← (1 − ηλ)·w, before the rest                           Loshchilov & Hutter 2019

For plain SGD they are the same. Under Adam the penalty's gradient is divided by √v̂ as all of it is, so that parameters
with large gradients hardly decay; decoupled, all decay alike. Either is for after the all-reduce: added to every rank's
gradient before, the penalty would be summed P times.

They are elementwise, so a part of the vector can be moved by a rank of its own (`model_parallel.zero`),
and what they remember lies in plain sight, to be saved, sent or divided. Formulas and order of
operations are those of torch.optim, to which the tests compare them; that one loads torch's compiler
at its first step, which would cost every rank 1.5 s at its start.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


class SGD:
    """Moves `values` in place, against their `gradients`.

    Attributes:
        lr: the learning rate; may be changed between two steps.
        l2, decay: λ of the L2 penalty, whose gradient is added to `gradients`, and of decoupled decay.
        state: name → what is remembered from step to step; change it in place only.
    """

    def __init__(self, values: Tensor, gradients: Tensor, lr: float) -> None:
        self.values, self.gradients, self.lr = values, gradients, lr
        self.l2 = self.decay = 0.0
        self.state: dict[str, Tensor] = {}

    @torch.no_grad()
    def step(self) -> None:
        self._shrink()
        if self.l2:
            self.gradients.add_(self.values, alpha=self.l2)
        self._move()

    def _shrink(self) -> None:
        if self.decay:
            self.values.mul_(1 - self.lr * self.decay)

    def _move(self) -> None:
        self.values.add_(self.gradients, alpha=-self.lr)


class Momentum(SGD):
    def __init__(self, values: Tensor, gradients: Tensor, lr: float, momentum: float = 0.9) -> None:
        super().__init__(values, gradients, lr)
        self.momentum = momentum
        self.state["velocity"] = torch.zeros_like(values)

    def _move(self) -> None:
        velocity = self.state["velocity"].mul_(self.momentum).add_(self.gradients)
        self.values.add_(velocity, alpha=-self.lr)


class Adam(SGD):
    def __init__(
        self,
        values: Tensor,
        gradients: Tensor,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
    ) -> None:
        super().__init__(values, gradients, lr)
        self.betas, self.epsilon = betas, epsilon
        self.state |= adam_state(values)

    def _move(self) -> None:
        mean, root, correction = self._moments()
        self.values.addcdiv_(mean, root, value=-self.lr / correction)

    def _moments(self) -> tuple[Tensor, Tensor, float]:
        return adam_moments(self.state, self.gradients, self.betas, self.epsilon)


def adam_state(values: Tensor) -> dict[str, Tensor]:
    """Return what Adam remembers of `values` before the first step."""
    steps = torch.zeros((), dtype=torch.int64)
    return {"mean": torch.zeros_like(values), "mean square": torch.zeros_like(values), "steps": steps}


def adam_moments(
    state: dict[str, Tensor], gradients: Tensor, betas: tuple[float, float] = (0.9, 0.999), epsilon: float = 1e-8
) -> tuple[Tensor, Tensor, float]:
    """Take `gradients` into `state`; return m, √v̂ + ε, and by what m is to be divided to become m̂."""
    first, second = betas
    steps = int(state["steps"].add_(1))
    mean = state["mean"].lerp_(gradients, 1 - first)
    mean_square = state["mean square"].mul_(second).addcmul_(gradients, gradients, value=1 - second)
    root = (mean_square.sqrt() / (1 - second**steps) ** 0.5).add_(epsilon)
    return mean, root, 1 - first**steps


MakeOptimizer = Callable[[Tensor, Tensor], SGD]
OPTIMIZERS: dict[str, type[SGD]] = {"sgd": SGD, "momentum": Momentum, "adam": Adam}


def maker(name: str, lr: float, l2: float = 0.0, decay: float = 0.0) -> MakeOptimizer:
    """Makes the optimizer of that name for a vector of parameters and the vector of their gradients."""

    def make(values: Tensor, gradients: Tensor) -> SGD:
        optimizer = OPTIMIZERS[name](values, gradients, lr)
        optimizer.l2, optimizer.decay = l2, decay
        return optimizer

    return make
