"""Running a schedule over MPI: chunks become slices of a buffer, steps become messages.

The only extra memory is a scratch buffer for what the largest step adds; chunks to replace are received in place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from farandole.collectives.ring import segmented
from farandole.collectives.steps import Exchange, Schedule, Step, chunk_slices
from farandole.runtime.communicator import Buffer, Communicator

SEGMENT = 256 << 10  # bytes; what has arrived is still in a core's cache when it is added

AllReduce = Callable[[Communicator, Buffer], None]


@lru_cache
def _plan(schedule: Schedule, rank: int, size: int) -> tuple[Step, ...]:
    return tuple(schedule.steps(rank, size))


def run(schedule: Schedule, comm: Communicator, buffer: Buffer) -> None:
    """Carry out this rank's part of `schedule` on `buffer`, in place. Collective.

    Args:
        buffer: contiguous vector of any length, 0 included, of a type MPI knows (float32,
            float64, any integer) or float16, the same length and type on all ranks.

    Raises:
        ValueError: `buffer` is not one contiguous vector.
    """
    if buffer.ndim != 1 or not buffer.flags.c_contiguous:
        raise ValueError(f"one contiguous vector is needed, not shape {buffer.shape}: give buffer.reshape(-1)")
    plan = _plan(schedule, comm.rank, comm.size)
    parts = chunk_slices(len(buffer), schedule.chunks(comm.size))
    added = (sum(_length(parts, each) for each in step.exchanges if each.reduce) for step in plan)
    scratch = np.empty(max(added, default=0), buffer.dtype)
    for step in plan:
        sends, receives, sums, used = [], [], [], 0
        for each in step.exchanges:
            own = arriving = buffer[_span(parts, each.received)]
            if each.reduce:
                arriving = scratch[used : used + len(own)]
                used += len(own)
                sums.append((own, arriving))
            if each.to is not None:
                sends.append((_on_wire(buffer[_span(parts, each.sent)]), each.to))
            if each.source is not None:
                receives.append((_on_wire(arriving), each.source))
        _communicate(comm, sends, receives)
        with np.errstate(over="ignore", invalid="ignore"):  # of a training that diverges, whose loss reports it
            for own, arriving in sums:
                np.add(own, arriving, out=own)


def run_segmented_ring(comm: Communicator, buffer: Buffer) -> None:
    """The ring, in messages of `SEGMENT` bytes at most. Collective."""
    chunk = -(-buffer.nbytes // comm.size)
    run(segmented(max(1, -(-chunk // SEGMENT))), comm, buffer)


def _communicate(comm: Communicator, sends: list[tuple[Buffer, int]], receives: list[tuple[Buffer, int]]) -> None:
    """Exchange all messages of one step by the simplest call that carries them at the same time."""
    match sends, receives:
        case [(leaving, to)], [(arriving, source)]:
            comm.exchange(leaving, to, arriving, source)
        case [(leaving, to)], []:
            comm.send(leaving, to)
        case [], [(arriving, source)]:
            comm.receive(arriving, source)
        case _:
            comm.exchange_all(sends, receives)


def _on_wire(part: Buffer) -> Buffer:
    """The same memory, as a type that MPI knows: it has no float16."""
    return part.view(np.uint16) if part.dtype == np.float16 else part


def _length(parts: list[slice], exchange: Exchange) -> int:
    """Return the number of elements that arrive."""
    span = _span(parts, exchange.received)
    return int(span.stop - span.start)


def _span(parts: list[slice], chunks: range) -> slice:
    """Where chunks that follow each other lie in the vector."""
    return slice(parts[chunks[0]].start, parts[chunks[-1]].stop) if chunks else slice(0, 0)
