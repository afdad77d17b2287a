"""What a worker pushes after an iteration: its gradient, or what its own parameters have become.

    gradient     pulls w, pushes g
    parameters   pulls w, pushes x = w − ηg; the server blends (`update_rules.Blend`)
    elastic      has its own x all the time; pulls w as the centre, then
                     δ = α(x − w),   x ← x − n_r/N·δ,   the server adds n_r/N·δ to w
                     x ← x − ηg
                 so that Σx + w stays the same by the elastic step

The last is elastic averaging SGD (Zhang et al. 2015), the second document 000's formula.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from farandole.runtime.buffers import FlatBuffers

Array = NDArray[Any]


class Contribution(Protocol):
    """One worker's way.

    Attributes:
        into: where pulled parameters go.
    """

    into: Array

    def pulled(self, share: float) -> None:
        """New parameters are in `into`; afterwards the model can compute its gradient."""

    def to_push(self) -> Array:
        """The gradient is there; this is what to push."""


class PushGradient:
    def __init__(self, flat: FlatBuffers) -> None:
        self.flat = flat
        self.into = flat.values_np

    def pulled(self, share: float) -> None:
        self.flat.values_from_host()

    def to_push(self) -> Array:
        self.flat.to_host()
        return self.flat.gradients_np


class PushParameters:
    def __init__(self, flat: FlatBuffers, lr: float) -> None:
        self.flat, self.lr = flat, lr
        self.into = flat.values_np

    def pulled(self, share: float) -> None:
        self.flat.values_from_host()

    def to_push(self) -> Array:
        self.flat.values.add_(self.flat.gradients, alpha=-self.lr)
        self.flat.values_to_host()
        return self.flat.values_np.copy()  # the next pull comes into the array itself


class PushElastic:
    def __init__(self, flat: FlatBuffers, lr: float, elasticity: float) -> None:
        self.flat, self.lr, self.elasticity = flat, lr, elasticity
        self.into = np.empty_like(flat.values_np)
        self._difference = np.zeros_like(flat.values_np)

    def pulled(self, share: float) -> None:
        own = self.flat.values_np
        self._difference = self.elasticity * (own - self.into)
        own -= share * self._difference
        self.flat.values_from_host()

    def to_push(self) -> Array:
        self.flat.values.add_(self.flat.gradients, alpha=-self.lr)
        self.flat.values_to_host()
        return self._difference
