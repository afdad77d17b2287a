"""A worker's push after an iteration: its gradient, or its own new parameters.

    gradient     pulls w, pushes g
    parameters   pulls w, pushes x = w − ηg; the server blends (`core.update_rules.Blend`)
    elastic      keeps its own x; every τ iterations it pulls w as the centre and pushes δ, which the server adds to w:
                     δ = α(x − w),   x ← x − ηg(x) − δ,   w ← w + Σδ;   in the other iterations  x ← x − ηg(x)

The last is elastic averaging SGD (EASGD): the gradient is taken at x before the elastic move, which leaves Σx + w
unchanged. With α = 0 the workers train independently. `--elasticity` is β = Σα, how far the centre moves towards the
workers' mean in a synchronous exchange, w ← (1−β)w + β·mean x; each of p workers with equal shares has α = β/p, and the
paper takes β = 0.9. With `--sync bsp` this is the paper's synchronous form. With `async` it is the asynchronous
one, in which a worker exchanges with the centre whenever its own clock is divisible by τ; here δ arrives one gradient
computation after its pull. Momentum at the workers (EAMSGD) is not implemented.

Sources: Zhang, Choromanska & LeCun, "Deep learning with elastic averaging SGD", 2015; document 000's second formula.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from farandole.runtime.buffers import FlatBuffers

Array = NDArray[Any]


class Contribution:
    """The computation of one worker between a pull and a push; a context, which ends with the training.

    Attributes:
        into: where pulled parameters go; None: they are used where they lie.
        period: iterations from one pull to the next.
    """

    into: Array | None
    period = 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def pulled(self, share: float, lent: Array | None) -> None:
        """New parameters are in `into`, or in `lent`; afterwards the model can compute its gradient."""
        raise NotImplementedError

    def to_push(self) -> Array:
        """Return the vector to push, once the gradient is computed."""
        raise NotImplementedError

    def step_alone(self) -> None:
        """Apply the gradient of an iteration without pull and push; needed where `period` is more than 1."""
        raise NotImplementedError


class PushGradient(Contribution):
    def __init__(self, flat: FlatBuffers) -> None:
        self.flat = flat
        self.into = flat.values_np

    def pulled(self, share: float, lent: Array | None) -> None:
        self.flat.values_from_host()

    def to_push(self) -> Array:
        self.flat.to_host()
        return self.flat.gradients_np


class PushInPlace(Contribution):
    """As `PushGradient`, where the model computes in the window: at what the servers wrote, into what they read.

    Args:
        slot: this worker's array in the window.
    """

    into = None

    def __init__(self, flat: FlatBuffers, slot: Array) -> None:
        self.flat, self.slot = flat, slot
        self._own = flat.values_np, flat.gradients_np

    def __exit__(self, *_: object) -> None:
        """Take the model out of the window, which is about to be freed."""
        self.flat.lie_in(*self._own)

    def pulled(self, share: float, lent: Array | None) -> None:
        assert lent is not None
        self.flat.lie_in(lent, self.slot)

    def to_push(self) -> Array:
        self.flat.collect()
        return self.slot


class PushParameters(Contribution):
    def __init__(self, flat: FlatBuffers, lr: float) -> None:
        self.flat, self.lr = flat, lr
        self.into = flat.values_np

    def pulled(self, share: float, lent: Array | None) -> None:
        self.flat.values_from_host()

    def to_push(self) -> Array:
        self.flat.values.add_(self.flat.gradients, alpha=-self.lr)
        self.flat.values_to_host()
        return self.flat.values_np.copy()  # the next pull comes into the array itself


class PushElastic(Contribution):
    """Elastic averaging.

    Args:
        moving_rate: β = Σα; this worker's α is its share of it.
        period: τ, in iterations.
    """

    def __init__(self, flat: FlatBuffers, lr: float, moving_rate: float, period: int = 1) -> None:
        self.flat, self.lr, self.moving_rate, self.period = flat, lr, moving_rate, period
        self.into = np.empty_like(flat.values_np)
        self._difference = np.zeros_like(flat.values_np)

    def pulled(self, share: float, lent: Array | None) -> None:
        self._difference = (share * self.moving_rate) * (self.flat.values_np - self.into)

    def to_push(self) -> Array:
        self.step_alone()
        self.flat.values_np[:] -= self._difference
        self.flat.values_from_host()
        return self._difference

    def step_alone(self) -> None:
        self.flat.values.add_(self.flat.gradients, alpha=-self.lr)
        self.flat.values_to_host()
