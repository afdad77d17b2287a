"""Error feedback: what a compressor has lost is added to the next gradient, so nothing is lost, only late.

    p = gradient + residual,    send C(p),    residual ← p − C(p)

At any time Σ sent + residual = Σ gradients: exactly on numbers that float32 adds exactly, else to its rounding. So even
a biased compressor converges, as long as its error is smaller than its input; an unbiased one with a larger error is
scaled (`contraction`). Where p or its decoded form is not finite, the residual stays as it was (`non_finite`).

Cost: a vector of memory, one decoding per step, and a pass that checks whether the residual is finite.

Sources: Seide et al., "1-bit stochastic gradient descent", 2014; Stich, Cordonnier & Jaggi, "Sparsified SGD with
memory", 2018; Karimireddy et al., "Error feedback fixes SignSGD and other gradient compression schemes", 2019.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from farandole.compression.compressor import Compressor, Payload, Vector
from farandole.compression.contraction import contraction


class ErrorFeedback:
    """Wrapped around any compressor; itself one, but with a memory. One for each rank, and always the same length.

    An unbiased compressor of variance 1 or more is scaled by 1/(1 + ω), both in what is sent and in the residual.

    Attributes:
        residual: what has not been sent yet.
    """

    def __init__(self, compressor: Compressor, length: int) -> None:
        self.compressor = contraction(compressor, length)
        self.sums_as: np.dtype[Any] | None = compressor.sums_as
        self.residual: Vector = np.zeros(length, np.float32)

    def nbytes(self, length: int) -> int:
        return self.compressor.nbytes(length)

    def encode(self, vector: Vector) -> Payload:
        corrected = self.residual + vector
        payload = self.compressor.encode(corrected)
        with np.errstate(invalid="ignore"):
            corrected -= self.compressor.decode(payload, len(vector))
        if np.isfinite(corrected).all():
            self.residual = corrected
        return payload

    def variance(self, length: int) -> float:
        return 0.0

    def decode(self, payload: Payload, length: int) -> Vector:
        return self.compressor.decode(payload, length)
