"""Random-k: k entries drawn at random, the same ones on all ranks.

    C(v)ᵢ = (n / k)·vᵢ for the k drawn entries, else 0.        E[C(v)] = v,   E‖C(v) − v‖² = (n/k − 1)‖v‖²

All ranks draw from a common seed, so that only values travel, and can be added on the way. The factor n/k makes it
unbiased; with error feedback it must be left out, or what is kept grows from step to step.

Cost: 4k bytes, by an all-reduce. Sources: Wangni et al., "Gradient sparsification for communication-efficient
distributed optimization", 2018; Stich, Cordonnier & Jaggi, "Sparsified SGD with memory", 2018.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from farandole.compression.compressor import Payload, Vector, as_payload
from farandole.compression.top_k import count_of


class RandomK:
    """
    Args:
        generator: seeded alike on all ranks, and used for nothing else.
        unbiased: multiply by n/k.

    `decode` is for payloads of the last `encode`'s round: they are values at the entries that were drawn there.
    """

    sums_as: np.dtype[Any] | None = np.dtype(np.float32)

    def __init__(self, generator: np.random.Generator, fraction: float, unbiased: bool = True) -> None:
        self.generator, self.fraction, self.unbiased = generator, fraction, unbiased
        self._drawn: NDArray[np.int64] = np.arange(0)

    def nbytes(self, length: int) -> int:
        return 4 * count_of(self.fraction, length)

    def encode(self, vector: Vector) -> Payload:
        count = count_of(self.fraction, len(vector))
        self._drawn = np.sort(self.generator.choice(len(vector), count, replace=False, shuffle=False))
        factor = np.float32(len(vector) / count if self.unbiased and count else 1)
        return as_payload(vector[self._drawn] * factor)

    def decode(self, payload: Payload, length: int) -> Vector:
        vector = np.zeros(length, np.float32)
        vector[self._drawn] = payload.view(np.float32)
        return vector
