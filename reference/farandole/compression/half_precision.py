"""Half precision: every entry in 16 bits instead of 32, by rounding to the nearest.

float16 keeps 11 significant bits (relative error ≤ 2⁻¹¹) between 6·10⁻⁵ and 65504; above is infinity, below the error
is up to 3·10⁻⁸, whatever the number. bfloat16 has float32's range, and 8 significant bits (relative error ≤ 2⁻⁸).

Cost: 2n bytes. float16 can be added while encoded, and an all-reduce carries it, with one more rounding an addition;
numpy and MPI know no bfloat16, so that is gathered here. Source: Micikevicius et al., "Mixed precision training", 2018
(document 002's quantisation in its simplest form).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from farandole.compression.compressor import Payload, Use, Vector, as_payload


class Float16:
    sums_as: np.dtype[Any] | None = np.dtype(np.float16)

    def nbytes(self, length: int) -> int:
        return 2 * length

    def variance(self, length: int) -> float:
        return 0.0

    def encode(self, vector: Vector) -> Payload:
        with np.errstate(over="ignore"):  # what is too large becomes infinity, and is seen as such
            return as_payload(vector.astype(np.float16))

    def decode(self, payload: Payload, length: int) -> Vector:
        return payload.view(np.float16).astype(np.float32)


class BFloat16:
    """The upper half of a float32: sign, all 8 bits of the exponent, the first 7 of the fraction."""

    sums_as: np.dtype[Any] | None = None

    def nbytes(self, length: int) -> int:
        return 2 * length

    def variance(self, length: int) -> float:
        return 0.0

    def encode(self, vector: Vector) -> Payload:
        bits = np.ascontiguousarray(vector).view(np.uint32)
        even = (bits >> np.uint32(16)) & np.uint32(1)  # a tie goes to the even neighbour
        rounded = (bits + np.uint32(0x7FFF) + even) >> np.uint32(16)
        # Rounding up could carry a NaN's fraction into its sign.
        return as_payload(np.where(np.isnan(vector), np.uint32(0x7FC0), rounded).astype(np.uint16))

    def decode(self, payload: Payload, length: int) -> Vector:
        return (payload.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


def make_float16(use: Use) -> Float16:
    return Float16()


def make_bfloat16(use: Use) -> BFloat16:
    return BFloat16()
