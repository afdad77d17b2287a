"""Sign: one bit an entry, and one number for all magnitudes.

    C(v) = (‖v‖₁ / n) · sign(v),    sign(0) = +1

The mean magnitude makes the step as long as the gradient's; the direction is biased, and alone this can move away from
the minimum for ever (Karimireddy et al. give examples). With error feedback it converges as SGD does.

Cost: 4 + ⌈n/8⌉ bytes. Sources: Seide et al., "1-bit stochastic gradient descent", 2014; Bernstein et al., "signSGD",
2018; Karimireddy et al., "Error feedback fixes SignSGD", 2019.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from farandole.compression.compressor import Payload, Use, Vector, as_payload


class Sign:
    sums_as: np.dtype[Any] | None = None

    def nbytes(self, length: int) -> int:
        return 4 + -(-length // 8)

    def variance(self, length: int) -> float:
        return 0.0

    def encode(self, vector: Vector) -> Payload:
        magnitude = np.abs(vector).mean(dtype=np.float64) if len(vector) else 0.0
        return as_payload(np.array([magnitude], np.float32), np.packbits(vector < 0))

    def decode(self, payload: Payload, length: int) -> Vector:
        magnitude = payload[:4].view(np.float32)
        negative = np.unpackbits(payload[4:], count=length).astype(bool)
        signed: Vector = np.where(negative, -magnitude, magnitude)
        return signed


def make(use: Use) -> Sign:
    return Sign()
