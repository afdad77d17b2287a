"""A learning rate that follows the gradients: up while successive ones agree, down when they reverse.

    a = Σ_t g_t·g_{t−1} / Σ_t ‖g_t‖‖g_{t−1}‖        over the steps of a window, −1 to 1; g_t is the mean gradient

    a > 0.1     η ← 1.05·η       successive gradients point the same way: the minimum is still far
    a < 0       η ← 0.5·η        they point back: the steps are longer than the valley is wide

Document 001 has every node collect the gradients of past rounds, estimate the error from them, and lower the rate when
the error is high, raise it when it is low. After the all-reduce every rank has the mean gradient. Kept for one step, it
shows the error of the *step*: g_t·g_{t−1} is, up to its sign, the derivative of the loss with respect to the previous
step's rate. The length of a gradient says nothing about the rate (erratum 001.10).

Cost: no additional bytes; a copy of the gradient, and three dot products per step. Sources: Kesten, "Accelerated
stochastic approximation", 1958 (the rate falls when successive steps change their sign); Jacobs, "Increased rates of
convergence through learning rate adaptation", 1988; Baydin et al., "Online learning rate adaptation with hypergradient
descent", 2018.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from typing import Any

import torch
from torch import Tensor

from farandole.data_parallel.bold_driver import DOWN, UP

AGREE = 0.1  # noise alone gives an agreement around 0


class GradientAgreement:
    """Decides on the rate. All ranks decide alike, since all have the same mean gradients.

    Attributes:
        past: the mean gradient of the last step that was noted; 0 before the first one.
    """

    def __init__(self, like: Tensor) -> None:
        self.past = torch.zeros_like(like)
        self._together = self._lengths = 0.0  # the sums over the window

    def note(self, gradient: Tensor) -> None:
        """Record a step's mean gradient, which is bitwise the same on all ranks."""
        # In double precision: in float32 squares of small numbers underflow, and those of large ones overflow.
        own, past = gradient.detach().double(), self.past.double()
        self._together += float(own @ past)
        self._lengths += sqrt(float(own @ own) * float(past @ past))
        self.past.copy_(gradient)

    @property
    def agreement(self) -> float:
        """Return a of the window so far; 0 where there is nothing to compare."""
        return self._together / self._lengths if self._lengths else 0.0

    def conclude(self, lr: float) -> float:
        """End the window, whose rate was `lr`, and return the next window's rate."""
        agreement = self.agreement
        self._together = self._lengths = 0.0
        if agreement > AGREE:
            return UP * lr
        return DOWN * lr if agreement < 0 else lr

    def state(self) -> dict[str, Any]:
        """Return what, with `past`, a checkpoint needs of it."""
        return {"together": self._together, "lengths": self._lengths}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from where `state` was read."""
        self._together, self._lengths = state["together"], state["lengths"]
