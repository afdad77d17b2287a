"""Top-k: only the k entries of largest magnitude, with their places.

What is left out is lost unless error feedback keeps it for its turn. The places differ between ranks, so the union of
all ranks' entries is as large as P·k: it is gathered, not added.

Cost: k places and k values, 8k bytes: less than the vector only where k < n/2, and with P ranks less than the ring's
2(P−1)/P·4n only where k < n/P. Finding the k largest takes time linear in n. Sources: Aji & Heafield, "Sparse
communication for distributed gradient descent", 2017; Stich, Cordonnier & Jaggi, "Sparsified SGD with memory", 2018.
Document 004's "push the largest" is `parameter_server/core/top_k.py`, which chooses by this module.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from farandole.compression.compressor import Payload, Use, Vector, as_payload


def count_of(fraction: float, length: int) -> int:
    """k: the fraction of the length, at least one entry, and no more than there are."""
    return min(length, max(1, round(fraction * length)))


def largest(vector: NDArray[Any], count: int) -> NDArray[np.int64]:
    """Where the `count` entries of largest magnitude are, ascending. A NaN counts as the largest: it is not hidden."""
    chosen = np.argpartition(np.abs(vector), len(vector) - count)[len(vector) - count :] if count else np.arange(0)
    return np.sort(chosen).astype(np.int64)


def scattered(payload: Payload, length: int) -> Vector:
    """Return the vector that has the sent values at their places, and 0 elsewhere."""
    places, values = np.split(payload.view(np.uint32), 2)
    vector = np.zeros(length, np.float32)
    vector[places] = values.view(np.float32)
    return vector


class TopK:
    """
    Args:
        fraction: k / n, above 0 and up to 1; at least one entry is sent.
    """

    sums_as: np.dtype[Any] | None = None

    def __init__(self, fraction: float) -> None:
        self.fraction = fraction

    def nbytes(self, length: int) -> int:
        return 8 * count_of(self.fraction, length)

    def variance(self, length: int) -> float:
        return 0.0

    def encode(self, vector: Vector) -> Payload:
        places = largest(vector, count_of(self.fraction, len(vector)))
        return as_payload(places.astype(np.uint32), vector[places])

    def decode(self, payload: Payload, length: int) -> Vector:
        return scattered(payload, length)


def make(use: Use) -> TopK:
    return TopK(use.options.fraction)
