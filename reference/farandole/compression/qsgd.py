"""QSGD: every entry is rounded to one of s levels of the norm, up or down by chance, and is right on average.

    C(v)ᵢ = ‖v‖₂ · sign(vᵢ) · ξᵢ / s,    ξᵢ = ⌊a⌋ or ⌊a⌋ + 1,  a = s|vᵢ| / ‖v‖₂,  the upper one with probability a − ⌊a⌋

    E[C(v)] = v,    E‖C(v) − v‖² ≤ min(d / s², √d / s) · ‖v‖²    for a bucket of d entries

The bound grows with d, so the vector is cut into buckets, each with its own norm. Unbiased: no error feedback is
needed, though it is possible, with scaling where the bound is 1 or more (`contraction`).

Cost: 4 bytes a bucket and ⌈log₂(2s + 1)⌉ bits an entry; the paper's Elias coding, which makes small levels shorter,
would make the length depend on the values. Source: Alistarh et al., "QSGD: communication-efficient SGD via gradient
quantization and encoding", 2017 (document 002's quantisation).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from farandole.compression.compressor import Payload, Use, Vector, as_payload
from farandole.compression.packing import bucket_count, in_buckets, pack, packed_bytes, unpack


class QSGD:
    """
    Args:
        levels: s, from 1 to 32767.
        bucket: d, the number of entries that share a norm.
    """

    sums_as: np.dtype[Any] | None = None

    def __init__(self, generator: np.random.Generator, levels: int = 7, bucket: int = 512) -> None:
        self.generator, self.levels, self.bucket = generator, levels, bucket
        self.bits = (2 * levels).bit_length()  # ⌈log₂(2s + 1)⌉: codes are 0 to 2s

    def nbytes(self, length: int) -> int:
        return 4 * bucket_count(length, self.bucket) + packed_bytes(length, self.bits)

    def variance(self, length: int) -> float:
        entries = min(self.bucket, length)
        return float(min(entries / self.levels**2, entries**0.5 / self.levels))

    def encode(self, vector: Vector) -> Payload:
        values = in_buckets(vector, self.bucket)
        # Squares of small numbers vanish in float32, squares of large ones are infinite.
        exact = np.sqrt(np.square(values, dtype=np.float64).sum(axis=1, keepdims=True))
        with np.errstate(over="ignore"):
            norms = exact.astype(np.float32)
        norms[~np.isfinite(norms)] = np.nan  # decoded, all of the bucket is NaN
        finite = np.where(np.isnan(norms) | (norms == 0), np.float32(0), values)
        places = np.abs(finite) / np.where(finite.any(axis=1, keepdims=True), norms, np.float32(1)) * self.levels
        lower = np.floor(places)
        chosen = lower + (self.generator.random(values.shape, np.float32) < places - lower)
        codes = np.sign(finite) * np.minimum(chosen, self.levels) + self.levels
        return as_payload(norms, pack(codes.reshape(-1)[: len(vector)], self.bits))

    def decode(self, payload: Payload, length: int) -> Vector:
        split = 4 * bucket_count(length, self.bucket)
        norms = np.repeat(payload[:split].view(np.float32), self.bucket)[:length]
        steps = (unpack(payload[split:], self.bits, length) - self.levels).astype(np.float32)
        return norms * (steps / np.float32(self.levels))


def make(use: Use) -> QSGD:
    return QSGD(use.own, use.options.levels, use.options.bucket)
