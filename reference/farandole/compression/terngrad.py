"""TernGrad: every entry becomes −m, 0 or +m, by chance, and is right on average.

    m = max |v|,    C(v)ᵢ = m · sign(vᵢ) with probability |vᵢ| / m, else 0.        E[C(v)] = v

Unbiased, so it needs no error feedback; Var[C(v)ᵢ] = |vᵢ|(m − |vᵢ|), so that E‖C(v) − v‖² ≤ (√d − 1)/2·‖v‖² for a
bucket of d entries, with equality where all but the largest are m/(√d + 1). One large entry makes m large for all that
share it, so each bucket has its own m, where the paper has one per layer.

Two options of the paper. Clipping first limits entries to c standard deviations of their bucket, c = 2.5. That makes m
and so the noise smaller, at the price of a bias. Scaler sharing takes the largest m of all ranks, so that every rank's
entries are −m, 0 or +m with the same m, and the mean of P ranks has 2P + 1 possible values. The ranks then exchange
their scales before they encode, and payloads contain none: the same bytes, and one more exchange.

Cost: 4 bytes a bucket and 2 bits an entry (of 3 values, log₂3 = 1.58 bits could hold them): about 1/16 of float32.
Source: Wen et al., "TernGrad: ternary gradients to reduce communication in distributed deep learning", 2017.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from farandole.compression.compressor import Payload, Use, Vector, as_payload
from farandole.compression.packing import bucket_count, in_buckets, pack, packed_bytes, unpack

BITS = 2


class TernGrad:
    """
    Args:
        bucket: number of entries that share a scale.
        clip: c, in standard deviations; the result is then biased. None: no clipping.
        shared: use the largest scales of all ranks; `share` must be called before each encoding.
    """

    sums_as: np.dtype[Any] | None = None

    def __init__(
        self, generator: np.random.Generator, bucket: int = 512, clip: float | None = None, shared: bool = False
    ) -> None:
        self.generator, self.bucket, self.clip, self.shared = generator, bucket, clip, shared
        self._common: Vector = np.zeros((0, 1), np.float32)

    def nbytes(self, length: int) -> int:
        return (0 if self.shared else self.scale_bytes(length)) + packed_bytes(length, BITS)

    def scale_bytes(self, length: int) -> int:
        """Return the bytes of a vector's scales."""
        return 4 * bucket_count(length, self.bucket)

    def scales(self, vector: Vector) -> Vector:
        """Return m of each bucket, shape (buckets, 1); NaN where one of its entries is not finite."""
        return self._scales(self._clipped(vector))

    def share(self, everybodys: Vector, length: int) -> None:
        """Use the largest of all ranks' scales for encoding and decoding.

        Args:
            everybodys: all ranks' `scales`, one after the other.
            length: number of entries of the vectors.
        """
        self._common = everybodys.reshape(-1, bucket_count(length, self.bucket), 1).max(axis=0, initial=0)

    def variance(self, length: int) -> float:
        return (min(self.bucket, length) ** 0.5 - 1) / 2 if length else 0.0

    def encode(self, vector: Vector) -> Payload:
        values = self._clipped(vector)
        scales = self._common if self.shared else self._scales(values)
        kept = self.generator.random(values.shape, np.float32) * scales < np.abs(values)  # false beside a NaN
        codes = kept * np.sign(np.nan_to_num(values)) + 1
        packed = pack(codes.reshape(-1)[: len(vector)], BITS)
        return as_payload(packed) if self.shared else as_payload(scales, packed)

    def decode(self, payload: Payload, length: int) -> Vector:
        split = 0 if self.shared else self.scale_bytes(length)
        scales = self._common.reshape(-1) if self.shared else payload[:split].view(np.float32)
        codes = (unpack(payload[split:], BITS, length) - 1).astype(np.float32)
        decoded: Vector = np.repeat(scales, self.bucket)[:length] * codes
        return decoded

    def _clipped(self, vector: Vector) -> Vector:
        """Return the clipped vector in buckets; a bucket that is not full has the deviation of the entries it has."""
        values = in_buckets(vector, self.bucket)
        if self.clip is None or not len(vector):
            return values
        counts = np.minimum(len(vector) - self.bucket * np.arange(len(values)), self.bucket)[:, None]
        mean = values.sum(axis=1, dtype=np.float64, keepdims=True) / counts
        square = np.square(values, dtype=np.float64).sum(axis=1, keepdims=True) / counts
        with np.errstate(invalid="ignore"):
            bound = (self.clip * np.sqrt(np.maximum(square - mean**2, 0))).astype(np.float32)
        clipped: Vector = np.where(np.isfinite(values), np.clip(values, -bound, bound), values)
        return clipped

    @staticmethod
    def _scales(values: Vector) -> Vector:
        scales: Vector = np.abs(values).max(axis=1, initial=0, keepdims=True)
        scales[~np.isfinite(scales)] = np.nan  # decoded, all of the bucket is NaN
        return scales


def make(use: Use) -> TernGrad:
    """Return the compressor of one rank; of the options only --bucket is everywhere."""
    clip, shared = getattr(use.options, "terngrad_clip", None), getattr(use.options, "share_scales", False)
    return TernGrad(use.own, use.options.bucket, clip, shared)
