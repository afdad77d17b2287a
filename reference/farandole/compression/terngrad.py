"""TernGrad: every entry becomes −m, 0 or +m, by chance, and is right on average.

    m = max |v|,    C(v)ᵢ = m · sign(vᵢ) with probability |vᵢ| / m, else 0.        E[C(v)] = v

Unbiased, so it needs no error feedback; Var[C(v)ᵢ] = |vᵢ|(m − |vᵢ|), so that E‖C(v) − v‖² ≤ (√d − 1)/2·‖v‖² for a
bucket of d entries, with equality where all but the largest are m/(√d + 1). One large entry drowns all that share its
m, so there is one m a bucket, where the paper has one a layer.

Cost: 4 bytes a bucket and 2 bits an entry (of 3 values, log₂3 = 1.58 bits could hold them): about 1/16 of float32.
Source: Wen et al., "TernGrad: ternary gradients to reduce communication in distributed deep learning", 2017.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from farandole.compression.compressor import Payload, Vector, as_payload
from farandole.compression.packing import bucket_count, in_buckets, pack, packed_bytes, unpack

BITS = 2


class TernGrad:
    """
    Args:
        bucket: so many entries share a scale.
    """

    sums_as: np.dtype[Any] | None = None

    def __init__(self, generator: np.random.Generator, bucket: int = 512) -> None:
        self.generator, self.bucket = generator, bucket

    def nbytes(self, length: int) -> int:
        return 4 * bucket_count(length, self.bucket) + packed_bytes(length, BITS)

    def variance(self, length: int) -> float:
        return (min(self.bucket, length) ** 0.5 - 1) / 2 if length else 0.0

    def encode(self, vector: Vector) -> Payload:
        values = in_buckets(vector, self.bucket)
        scales = np.abs(values).max(axis=1, initial=0, keepdims=True)
        scales[~np.isfinite(scales)] = np.nan  # decoded, all of the bucket is NaN
        kept = self.generator.random(values.shape, np.float32) * scales < np.abs(values)  # false beside a NaN
        codes = kept * np.sign(np.nan_to_num(values)) + 1
        return as_payload(scales, pack(codes.reshape(-1)[: len(vector)], BITS))

    def decode(self, payload: Payload, length: int) -> Vector:
        split = 4 * bucket_count(length, self.bucket)
        scales = np.repeat(payload[:split].view(np.float32), self.bucket)[:length]
        return scales * (unpack(payload[split:], BITS, length) - 1).astype(np.float32)
