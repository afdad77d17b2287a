"""The vocabulary in which a collective algorithm says what happens next.

An algorithm is a generator: given a rank and the number of ranks, it yields that rank's steps.
It knows nothing of buffers, MPI or time. The vector to be reduced is cut into numbered chunks;
a step names chunks and ranks. The same generator is then run over MPI (`executor`), checked for
every number of ranks (`checker`), counted, and drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Exchange:
    """Send one chunk and receive another at the same time; either half may be absent.

    Attributes:
        send, to: the chunk that leaves, and for which rank.
        recv, source: the chunk that arrives, and from which rank.
        reduce: add the arriving chunk to our own; otherwise it replaces ours.
    """

    send: int | None = None
    to: int | None = None
    recv: int | None = None
    source: int | None = None
    reduce: bool = False

    def __str__(self) -> str:
        sending = f"send chunk {self.send} to {self.to}" if self.to is not None else ""
        verb = "add" if self.reduce else "take"
        receiving = f"{verb} chunk {self.recv} from {self.source}" if self.source is not None else ""
        return ", ".join(part for part in (sending, receiving) if part)


@dataclass(frozen=True)
class Schedule:
    """A named algorithm.

    Attributes:
        steps: (rank, ranks) → that rank's steps.
        chunks: ranks → into how many chunks the vector is cut.
    """

    name: str
    steps: Callable[[int, int], Iterator[Exchange]]
    chunks: Callable[[int], int]


def chunk_slice(length: int, chunks: int, chunk: int) -> slice:
    """One of the parts of a vector of `length` elements; their lengths differ by at most one."""
    return slice(length * chunk // chunks, length * (chunk + 1) // chunks)


def chunk_slices(length: int, chunks: int) -> list[slice]:
    """All of them."""
    return [chunk_slice(length, chunks, chunk) for chunk in range(chunks)]
