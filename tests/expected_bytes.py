"""The bytes that messages must have, by formula, for tests that compare them with those that were sent."""

from __future__ import annotations

from farandole.compression.compressor import Compressor
from farandole.compression.exchange import bytes_of_ring


def bytes_leaving(compressor: Compressor, length: int, rank: int, ranks: int) -> int:
    """Return the bytes that this rank sends in the next exchange of vectors of `length` entries."""
    nbytes, kind = compressor.nbytes(length), compressor.sums_as
    return (ranks - 1) * nbytes if kind is None else bytes_of_ring(nbytes // kind.itemsize, kind.itemsize, rank, ranks)
