"""A learning rate that follows the gradients that were collected: up while they agree, down when they turn round.

    a = Σ_t g_t·g_{t−1} / Σ_t ‖g_t‖‖g_{t−1}‖        over the steps of a window, −1 to 1; g_t is the mean gradient

    a > 0.1     η ← 1.05·η       successive gradients point the same way: the minimum is still far
    a < 0       η ← 0.5·η        they point back: the steps are longer than the valley is wide

Document 001 has every node collect the gradients of past rounds, estimate the error from them, and lower the rate when
the error is high, raise it when it is low. The all-reduce has left the mean gradient with every rank; kept for one
step, it tells the error of the *step*: g_t·g_{t−1} is, but for its sign, how the loss changes with the rate of the step
before. How long a gradient is says nothing about the rate (erratum 001.10).

Cost: no byte; a copy of the gradient, and three dot products a step. Sources: Kesten, "Accelerated stochastic
approximation", 1958 (the rate falls when successive steps change their sign); Jacobs, "Increased rates of convergence
through learning rate adaptation", 1988; Baydin et al., "Online learning rate adaptation with hypergradient descent",
2018.
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
    """Decides on the rate, the same way on all ranks, for all see the same mean gradients.

    Attributes:
        past: the mean gradient of the last step that was noted; 0 before the first one.
    """

    def __init__(self, like: Tensor) -> None:
        self.past = torch.zeros_like(like)
        self._together = self._lengths = 0.0  # the sums over the window

    def note(self, gradient: Tensor) -> None:
        """A step's mean gradient is known; the same bits on all ranks."""
        # In double precision: squares of small numbers vanish, and of large ones overflow.
        own, past = gradient.detach().double(), self.past.double()
        self._together += float(own @ past)
        self._lengths += sqrt(float(own @ own) * float(past @ past))
        self.past.copy_(gradient)

    @property
    def agreement(self) -> float:
        """a of the window so far; 0 where there is nothing to compare."""
        return self._together / self._lengths if self._lengths else 0.0

    def conclude(self, lr: float) -> float:
        """The window has ended: the rate of the next one, where it was `lr`."""
        agreement = self.agreement
        self._together = self._lengths = 0.0
        if agreement > AGREE:
            return UP * lr
        return DOWN * lr if agreement < 0 else lr

    def state(self) -> dict[str, Any]:
        """What, with `past`, decides how it goes on."""
        return {"together": self._together, "lengths": self._lengths}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Be where `state` was read."""
        self._together, self._lengths = state["together"], state["lengths"]
