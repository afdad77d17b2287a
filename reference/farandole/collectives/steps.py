"""The vocabulary of collective algorithms: the steps that a schedule yields.

An algorithm is a generator: given a rank and the number of ranks, it yields that rank's steps.
It knows nothing of buffers, MPI or time. The vector to be reduced is cut into numbered chunks;
a step names chunks and ranks. The same generator is then run over MPI (`executor`), checked for
every number of ranks (`checker`), counted, and drawn.

A step is one `Exchange`, with at most one message in each direction, or several exchanges `Together`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from farandole.runtime.traffic import CollectiveKind


@dataclass(frozen=True, slots=True)
class Exchange:
    """Send a chunk and receive another at the same time; either half may be absent.

    The chunk that arrives may replace the one that leaves, which is sent as it was before.

    Attributes:
        send, to: the chunk that leaves, and for which rank.
        recv, source: the chunk that arrives, and from which rank.
        reduce: add the arriving chunk to our own; otherwise it replaces ours.
        count: number of consecutive chunks, from the named ones on, that form one message.
        offsets: of the chunks that form one message, counted from the named one, where they are not consecutive; the
            message is packed and unpacked. It replaces `count`.
    """

    send: int | None = None
    to: int | None = None
    recv: int | None = None
    source: int | None = None
    reduce: bool = False
    count: int = 1
    offsets: tuple[int, ...] = ()

    @property
    def exchanges(self) -> tuple[Exchange, ...]:
        """Return this exchange alone, as `Together.exchanges` returns several."""
        return (self,)

    @property
    def sent(self) -> Sequence[int]:
        """Return the chunks that leave."""
        return self._from(self.send)

    @property
    def received(self) -> Sequence[int]:
        """Return the chunks that arrive."""
        return self._from(self.recv)

    @property
    def swaps(self) -> bool:
        """Whether the chunks that arrive replace those that leave."""
        return self.send is not None and self.send == self.recv and not self.reduce

    def _from(self, first: int | None) -> Sequence[int]:
        if first is None:
            return range(0)
        if self.offsets:
            return tuple(first + offset for offset in self.offsets)
        return range(first, first + self.count)

    def __str__(self) -> str:
        sending = f"send {named(self.sent)} to {self.to}" if self.to is not None else ""
        verb = "add" if self.reduce else "take"
        receiving = f"{verb} {named(self.received)} from {self.source}" if self.source is not None else ""
        return ", ".join(part for part in (sending, receiving) if part)


@dataclass(frozen=True, slots=True)
class Together:
    """Several exchanges at the same time, as with both neighbours of a ring: one step, complete when all of them are.

    Every chunk that is sent is sent as it was before the step. Two messages between the same two ranks arrive in the
    order in which the exchanges are listed.
    """

    exchanges: tuple[Exchange, ...]

    def __str__(self) -> str:
        return " and ".join(f"({each})" for each in self.exchanges)


Step = Exchange | Together
Steps = Callable[[int, int], Iterator[Step]]  # (rank, ranks) → that rank's steps


@dataclass(frozen=True)
class Schedule:
    """A named algorithm.

    Attributes:
        steps: (rank, ranks) → that rank's steps.
        chunks: ranks → into how many chunks the vector is cut.
        critical: ranks → a rank that never waits for others' earlier steps to end, so that its own steps take as long
            as the whole schedule; None: no such rank is known.
        operation: what it computes, if the trace is to show its messages as one operation; None: it lists them.
        uniform: whether the ranks' k-th steps belong together, and where the critical rank repeats a step, with the
            same partners and number of chunks, all ranks do.
    """

    name: str
    steps: Steps
    chunks: Callable[[int], int]
    critical: Callable[[int], int] | None = None
    operation: CollectiveKind | None = None
    uniform: bool = False


def chunk_slice(length: int, chunks: int, chunk: int) -> slice:
    """Return one of the parts of a vector of `length` elements; their lengths differ by at most one."""
    return slice(length * chunk // chunks, length * (chunk + 1) // chunks)


def chunk_slices(length: int, chunks: int) -> list[slice]:
    """Return all parts of a vector of `length` elements."""
    return [chunk_slice(length, chunks, chunk) for chunk in range(chunks)]


def named(chunks: Sequence[int]) -> str:
    """In words."""
    if len(chunks) == 1:
        return f"chunk {chunks[0]}"
    if isinstance(chunks, range):
        return f"chunks {chunks[0]} to {chunks[-1]}"
    return f"chunks {', '.join(map(str, chunks[:-1]))} and {chunks[-1]}"
