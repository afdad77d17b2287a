"""An unbiased compressor, scaled so that its error is smaller than its input, as error feedback needs it.

    unbiased       E[C(v)] = v,   E‖C(v) − v‖² ≤ ω·‖v‖²
    contraction    E‖C(v) − v‖² ≤ (1 − δ)·‖v‖²,   0 < δ ≤ 1

With ω < 1 an unbiased compressor is a contraction as it is, δ = 1 − ω. With ω ≥ 1, as for QSGD with few levels,
TernGrad and random-k, the error may be larger than the vector: kept by error feedback, it can grow from step to step.
Multiplied by 1/(1 + ω) it is a contraction with δ = 1/(1 + ω), whatever ω:

    E‖C(v)/(1 + ω) − v‖² = E‖C(v) − v‖²/(1 + ω)² + (ω/(1 + ω))²‖v‖² ≤ ω/(1 + ω)·‖v‖²

The result is no longer unbiased: each step applies a part, and the residual keeps the rest. The residual is then
bounded: with gradients of length G at most, E‖residual‖² ≤ 4(1 − δ)/δ²·G² (Karimireddy et al. 2019, lemma 3).

Cost: one multiplication per entry after decoding; no additional bytes. Sources: Stich, Cordonnier & Jaggi, "Sparsified
SGD with memory", 2018; Karimireddy et al., "Error feedback fixes SignSGD", 2019; the scaling: Horváth & Richtárik, "A
better alternative to error feedback for communication-efficient distributed learning", 2021, whose own construction
goes in the other direction, from a contraction to an unbiased compressor.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from farandole.compression.compressor import Compressor, Payload, Vector


class Scaled:
    """A compressor whose decoded vectors are multiplied by 1/(1 + ω); the bytes are the same."""

    def __init__(self, compressor: Compressor) -> None:
        self.compressor = compressor
        self.sums_as: np.dtype[Any] | None = compressor.sums_as

    def nbytes(self, length: int) -> int:
        return self.compressor.nbytes(length)

    def variance(self, length: int) -> float:
        """Return 0: a scaled compressor is a contraction, and not unbiased."""
        return 0.0

    def encode(self, vector: Vector) -> Payload:
        return self.compressor.encode(vector)

    def decode(self, payload: Payload, length: int) -> Vector:
        factor = np.float32(1 / (1 + self.compressor.variance(length)))
        decoded: Vector = self.compressor.decode(payload, length) * factor
        return decoded


def contraction(compressor: Compressor, length: int) -> Compressor:
    """Return the compressor itself if its error is smaller than its input, otherwise a `Scaled` one."""
    return compressor if compressor.variance(length) < 1 else Scaled(compressor)
