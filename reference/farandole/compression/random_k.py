"""Random-k: k entries drawn at random, the same ones on all ranks.

    C(v)ᵢ = (n / k)·vᵢ for the k drawn entries, else 0.        E[C(v)] = v,   E‖C(v) − v‖² = (n/k − 1)‖v‖²

All ranks draw from a common seed, so that only values travel, and can be added on the way. The factor n/k makes it
unbiased; with error feedback it must be left out, or what is kept grows from step to step.

`SeededRandomK` draws on each rank separately and sends the seed with the values. Such payloads cannot be added, but
each can be decoded alone, as a parameter server needs.

Cost: 4k bytes, by an all-reduce; with the seed 4k + 8. Sources: Wangni et al., "Gradient sparsification for
communication-efficient distributed optimization", 2018; Stich, Cordonnier & Jaggi, "Sparsified SGD with memory", 2018.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from farandole.compression.compressor import Payload, Use, Vector, as_payload
from farandole.compression.top_k import count_of

SEED = np.dtype(np.uint64)


class RandomK:
    """
    Args:
        generator: with the same seed on all ranks, and used for nothing else.
        unbiased: multiply by n/k.

    `decode` is for payloads of the last `encode`'s round: they are values at the entries that were drawn there.
    """

    sums_as: np.dtype[Any] | None = np.dtype(np.float32)

    def __init__(self, generator: np.random.Generator, fraction: float, unbiased: bool = True) -> None:
        self.generator, self.fraction, self.unbiased = generator, fraction, unbiased
        self._drawn: NDArray[np.int64] = np.arange(0)

    def nbytes(self, length: int) -> int:
        return 4 * count_of(self.fraction, length)

    def variance(self, length: int) -> float:
        return length / count_of(self.fraction, length) - 1 if self.unbiased and length else 0.0

    def encode(self, vector: Vector) -> Payload:
        self._drawn = self.draw(len(vector))
        if not np.isfinite(vector).all():  # else it would be hidden until it is drawn
            return as_payload(np.full(len(self._drawn), np.nan, np.float32))
        factor = np.float32(len(vector) / len(self._drawn) if self.unbiased and len(vector) else 1)
        return as_payload(vector[self._drawn] * factor)

    def draw(self, length: int) -> NDArray[np.int64]:
        """The next entries, in order."""
        return np.sort(self.generator.choice(length, count_of(self.fraction, length), replace=False, shuffle=False))

    def decode(self, payload: Payload, length: int) -> Vector:
        vector = np.zeros(length, np.float32)
        vector[self._drawn] = payload.view(np.float32)
        return vector


class SeededRandomK:
    """Random-k with the seed in the payload, from which any receiver finds the entries of the values.

    Args:
        generator: this rank's own; it draws the seeds.
        unbiased: multiply by n/k.
    """

    sums_as: np.dtype[Any] | None = None

    def __init__(self, generator: np.random.Generator, fraction: float, unbiased: bool = True) -> None:
        self.generator, self.fraction, self.unbiased = generator, fraction, unbiased

    def nbytes(self, length: int) -> int:
        return SEED.itemsize + 4 * count_of(self.fraction, length)

    def variance(self, length: int) -> float:
        return length / count_of(self.fraction, length) - 1 if self.unbiased and length else 0.0

    def encode(self, vector: Vector) -> Payload:
        seed = self.generator.integers(np.iinfo(SEED).max, size=1, dtype=SEED)
        return as_payload(seed, self._drawing(seed).encode(vector))

    def decode(self, payload: Payload, length: int) -> Vector:
        seed, values = payload[: SEED.itemsize].view(SEED), payload[SEED.itemsize :]
        vector = np.zeros(length, np.float32)
        vector[self._drawing(seed).draw(length)] = values.view(np.float32)
        return vector

    def _drawing(self, seed: NDArray[np.uint64]) -> RandomK:
        return RandomK(np.random.default_rng(seed), self.fraction, self.unbiased)


def make(use: Use) -> RandomK:
    return RandomK(use.common, use.options.fraction, unbiased=not use.feedback)
