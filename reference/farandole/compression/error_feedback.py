"""Error feedback: what a compressor has lost is added to the next gradient, so nothing is lost, only late.

    p = gradient + residual,    send C(p),    residual ← p − C(p)

At any time Σ sent + residual = Σ gradients: exactly on numbers that float32 adds exactly, else to its rounding. So even
a biased compressor converges, as long as it takes some part of what it is given away from it.

Cost: a vector of memory, and one decoding a step. Sources: Seide et al., "1-bit stochastic gradient descent", 2014;
Stich, Cordonnier & Jaggi, "Sparsified SGD with memory", 2018; Karimireddy et al., "Error feedback fixes SignSGD and
other gradient compression schemes", 2019.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from farandole.compression.compressor import Compressor, Payload, Vector


class ErrorFeedback:
    """Wrapped around any compressor; itself one, but with a memory. One for each rank, and always the same length.

    Attributes:
        residual: what has not been sent yet.
    """

    def __init__(self, compressor: Compressor, length: int) -> None:
        self.compressor = compressor
        self.sums_as: np.dtype[Any] | None = compressor.sums_as
        self.residual: Vector = np.zeros(length, np.float32)

    def nbytes(self, length: int) -> int:
        return self.compressor.nbytes(length)

    def encode(self, vector: Vector) -> Payload:
        self.residual += vector
        payload = self.compressor.encode(self.residual)
        self.residual -= self.compressor.decode(payload, len(vector))
        return payload

    def decode(self, payload: Payload, length: int) -> Vector:
        return self.compressor.decode(payload, length)
