"""Common parts of the quantisers: small whole numbers packed into as few bits as they need, and vectors in buckets."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from farandole.compression.compressor import Vector


def packed_bytes(count: int, bits: int) -> int:
    """Return the bytes that `count` numbers of `bits` bits take."""
    return -(-count * bits // 8)


def pack(numbers: NDArray[Any], bits: int) -> NDArray[np.uint8]:
    """Numbers from 0 to 2^bits − 1, lowest bit first, without a gap; only the last byte may be partly unused."""
    shifts = np.arange(bits, dtype=np.uint16)
    each = (numbers.astype(np.uint16)[:, None] >> shifts) & np.uint16(1)
    return np.packbits(each.astype(np.uint8), bitorder="little")


def unpack(packed: NDArray[np.uint8], bits: int, count: int) -> NDArray[np.int32]:
    """Return the `count` numbers again."""
    each = np.unpackbits(packed, count=count * bits, bitorder="little").reshape(count, bits)
    return each @ (np.int32(1) << np.arange(bits, dtype=np.int32))


def bucket_count(length: int, bucket: int) -> int:
    return -(-length // bucket)


def in_buckets(vector: Vector, bucket: int) -> Vector:
    """Shape (buckets, entries of a bucket); the last one is filled up with zeros."""
    rows = bucket_count(len(vector), bucket)
    padded = np.zeros(rows * bucket, np.float32)
    padded[: len(vector)] = vector
    return padded.reshape(rows, bucket)
