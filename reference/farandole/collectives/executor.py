"""Running a schedule over MPI: chunks become slices of a buffer, steps become messages.

Scratch for the longest message to be added is all the extra memory; what replaces ours is received in place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from farandole.collectives.ring import segmented
from farandole.collectives.steps import Exchange, Schedule, chunk_slices
from farandole.runtime.communicator import Buffer, Communicator

SEGMENT = 256 << 10  # bytes; what has arrived is still in a core's cache when it is added

AllReduce = Callable[[Communicator, Buffer], None]


@lru_cache
def _plan(schedule: Schedule, rank: int, size: int) -> tuple[Exchange, ...]:
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
    spans = (_span(parts, step.received) for step in plan if step.reduce)
    scratch = np.empty(max((span.stop - span.start for span in spans), default=0), buffer.dtype)
    for step in plan:
        sent, own = buffer[_span(parts, step.sent)], buffer[_span(parts, step.received)]
        arriving = scratch[: len(own)] if step.reduce else own
        if step.to is not None and step.source is not None:
            comm.exchange(_on_wire(sent), step.to, _on_wire(arriving), step.source)
        elif step.to is not None:
            comm.send(_on_wire(sent), step.to)
        elif step.source is not None:
            comm.receive(_on_wire(arriving), step.source)
        if step.reduce:
            np.add(own, arriving, out=own)


def run_segmented_ring(comm: Communicator, buffer: Buffer) -> None:
    """The ring, in messages of `SEGMENT` bytes at most. Collective."""
    chunk = -(-buffer.nbytes // comm.size)
    run(segmented(max(1, -(-chunk // SEGMENT))), comm, buffer)


def _on_wire(part: Buffer) -> Buffer:
    """The same memory, as a type that MPI knows: it has no float16."""
    return part.view(np.uint16) if part.dtype == np.float16 else part


def _span(parts: list[slice], chunks: range) -> slice:
    """Where chunks that follow each other lie in the vector."""
    return slice(parts[chunks[0]].start, parts[chunks[-1]].stop) if chunks else slice(0)
