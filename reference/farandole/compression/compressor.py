"""The interface of a compressor: a float32 vector to a known number of bytes, and back.

Every compressor satisfies:

- `encode` leaves its argument as it is and returns one contiguous vector of uint8.
- `nbytes` is its length, and follows from the vector's length alone: every rank knows how much the others send, and no
  message has to say so. (With a warm-up, as in `dgc`, also from the number of calls, which is the same on all ranks.)
- `decode` returns the vector that these bytes represent; any rank can decode the bytes of any other. Decoding draws no
  random numbers and changes nothing.
- A compressor has no memory but its random generator. `error_feedback` keeps the error.
- Vectors of any length, 0 included. A NaN or an infinity is never hidden. Decoded, it is where it was, or it has spread
  to all entries that share its scale; where entries are drawn at random, to all that travel (`non_finite`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float32]
Payload = NDArray[np.uint8]


class Compressor(Protocol):
    """See above.

    Attributes:
        sums_as: the type of numbers the bytes hold, where adding the numbers of all ranks encodes the sum of their
            vectors, so that an all-reduce can carry them; None: the bytes have to be gathered.
    """

    sums_as: np.dtype[Any] | None

    def nbytes(self, length: int) -> int:
        """Return the number of bytes of the next vector of `length` entries."""
        ...

    def variance(self, length: int) -> float:
        """Return ω of an unbiased compressor, E‖C(v) − v‖² ≤ ω‖v‖²; 0 where ‖C(v) − v‖ ≤ ‖v‖ in any case."""
        ...

    def encode(self, vector: Vector) -> Payload:
        """Return the bytes to send."""
        ...

    def decode(self, payload: Payload, length: int) -> Vector:
        """Return the vector of `length` entries that `payload` represents."""
        ...


@dataclass(frozen=True)
class Use:
    """The run for which a compressor is made; each compressor's file has a function `make` of it.

    Attributes:
        options: of the run; a compressor reads its own among them.
        common, own: random numbers, the same on all ranks, and others on each.
        feedback: what is lost is added to the next vector, so the compressor need not be right on average, but should
            never lose more than it is given.
        shapes: of the tensors that make up the vector, in order.
        ranks: number of ranks that compress and add up.
    """

    options: Any
    common: np.random.Generator
    own: np.random.Generator
    feedback: bool
    shapes: Sequence[tuple[int, ...]] = ()
    ranks: int = 1

    @property
    def length(self) -> int:
        """Of the vector."""
        return sum(map(prod, self.shapes))


def as_payload(*parts: NDArray[Any]) -> Payload:
    """Return arrays of any types as bytes, one after the other."""
    return np.concatenate([np.ascontiguousarray(part).reshape(-1).view(np.uint8) for part in parts])


class Uncompressed:
    """The vector as it is: 4n bytes, which may be added."""

    sums_as: np.dtype[Any] | None = np.dtype(np.float32)

    def nbytes(self, length: int) -> int:
        return 4 * length

    def variance(self, length: int) -> float:
        return 0.0

    def encode(self, vector: Vector) -> Payload:
        return as_payload(vector).copy()

    def decode(self, payload: Payload, length: int) -> Vector:
        return payload.view(np.float32).copy()


def make(use: Use) -> Uncompressed:
    return Uncompressed()
