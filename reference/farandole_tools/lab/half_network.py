"""A network so small that 16 bits can be looked at one by one: what lab 5 trains in mixed precision.

    x ── tanh(x·W + b) ── ·W + b ── half the squared distance from the target

Forward and backward compute in float16, as on hardware made for it, where products are added up in float32 and each
result is rounded. Only the loss and its slope are in float32; there the scale enters, as a scaled loss brings it in.

The unit in which the loss is counted is free. A small one, with a learning rate as much larger, is the same training
with smaller gradients. And some samples are outliers: with a scale large enough some of their gradients are infinite.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import accumulate, pairwise

import numpy as np

from farandole.runtime.communicator import Buffer

INPUTS, HIDDEN, OUTPUTS = 4, 5, 3
SHAPES = ((INPUTS, HIDDEN), (HIDDEN,), (HIDDEN, OUTPUTS), (OUTPUTS,))
PLACES = [slice(*ends) for ends in pairwise([0, *accumulate(int(np.prod(shape)) for shape in SHAPES)])]
ELEMENTS = PLACES[-1].stop
OUTLIER = 1000  # samples from here on: all alike, but that the target of the first output is far off
FAR = 2.0**14  # how far, upwards for even numbers, downwards for odd ones


class HalfNetwork:
    """Computes gradients in float16.

    Args:
        unit: the loss is multiplied by it, whatever the scale; a power of two.
    """

    def __init__(self, unit: float = 1.0) -> None:
        self.unit = unit

    def backward(self, half: Buffer, samples: Sequence[int], scale: float) -> Buffer:
        """Return the gradient of `scale` times the mean loss over `samples`: one vector of float16, 0 without samples.

        Args:
            half: all parameters, one vector of float16.

        Raises:
            TypeError: they are something else.
        """
        if not isinstance(half, np.ndarray) or half.dtype != np.float16 or half.shape != (ELEMENTS,):
            found = f"{half.dtype} of shape {half.shape}" if isinstance(half, np.ndarray) else type(half).__name__
            raise TypeError(f"backward computes in float16: it takes a vector of {ELEMENTS} float16, not {found}")
        with np.errstate(all="ignore"):  # what is too large becomes infinite, and that is the point
            x, target = data(samples)
            x = x.astype(np.float16)
            first, inner_bias, second, outer_bias = apart(half)
            inner = np.tanh(x @ first + inner_bias)
            y = inner @ second + outer_bias
            # The loss is in float32, and so is its slope; what goes back into the network is in float16 again.
            scaled = np.float32(scale * self.unit / max(1, len(samples)))
            slope = ((y.astype(np.float32) - target) * scaled).astype(np.float16)
            bent = (slope @ second.T) * (1 - inner * inner)
            parts = (x.T @ bent, bent.sum(axis=0), inner.T @ slope, slope.sum(axis=0))
            return np.concatenate([part.reshape(-1) for part in parts])

    def loss(self, values: Buffer, samples: Sequence[int]) -> float:
        """Return the mean loss over `samples`, in the type of `values`."""
        x, target = data(samples)
        first, inner_bias, second, outer_bias = apart(values)
        away = np.tanh(x @ first + inner_bias) @ second + outer_bias - target
        return self.unit * float((away**2).sum()) / 2 / len(samples)


def start() -> Buffer:
    """The parameters to begin with, in float32: all between ½ and 1 or −1 and −½, and such as float16 holds exactly."""
    random = np.random.default_rng(5)
    values: Buffer = random.integers(2**9, 2**10, size=ELEMENTS) / 2.0**10
    values *= random.choice([-1, 1], size=ELEMENTS)
    return values.astype(np.float32)


def apart(values: Buffer) -> list[Buffer]:
    """One vector as the network's W, b, W, b."""
    return [values[place].reshape(shape) for place, shape in zip(PLACES, SHAPES, strict=True)]


def data(samples: Sequence[int]) -> tuple[Buffer, Buffer]:
    """Return the inputs and the targets of these samples, in float32."""
    drawn = [_drawn(min(sample, OUTLIER)) for sample in samples]
    both = np.array(drawn, dtype=np.float32).reshape(len(samples), INPUTS + OUTPUTS)
    for row, sample in zip(both, samples, strict=True):
        if sample >= OUTLIER:
            row[INPUTS] = -FAR if sample % 2 else FAR
    return both[:, :INPUTS], both[:, INPUTS:]


@cache
def _drawn(sample: int) -> Buffer:
    numbers: Buffer = np.random.default_rng(sample).normal(size=INPUTS + OUTPUTS)
    return numbers
