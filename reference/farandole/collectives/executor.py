"""Running a schedule over MPI: chunks become slices of a buffer, steps become messages.

One scratch chunk is all the extra memory; a chunk that replaces ours is received in place.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from farandole.collectives.steps import Exchange, Schedule, chunk_slices
from farandole.runtime.communicator import Buffer, Communicator

AllReduce = Callable[[Communicator, Buffer], None]


@lru_cache
def _plan(schedule: Schedule, rank: int, size: int) -> tuple[Exchange, ...]:
    return tuple(schedule.steps(rank, size))


def run(schedule: Schedule, comm: Communicator, buffer: Buffer) -> None:
    """Carry out this rank's part of `schedule` on `buffer`, in place. Collective.

    Args:
        buffer: contiguous vector of any length, 0 included, of a type MPI knows (float32,
            float64, any integer), the same length and type on all ranks.

    Raises:
        ValueError: `buffer` is not one contiguous vector.
    """
    if buffer.ndim != 1 or not buffer.flags.c_contiguous:
        raise ValueError(f"one contiguous vector is needed, not shape {buffer.shape}: give buffer.reshape(-1)")
    slices = chunk_slices(len(buffer), schedule.chunks(comm.size))
    scratch = np.empty(max(part.stop - part.start for part in slices), buffer.dtype)
    for step in _plan(schedule, comm.rank, comm.size):
        sent, own = buffer[slices[step.send or 0]], buffer[slices[step.recv or 0]]
        arriving = scratch[: len(own)] if step.reduce else own
        if step.to is not None and step.source is not None:
            comm.exchange(sent, step.to, arriving, step.source)
        elif step.to is not None:
            comm.send(sent, step.to)
        elif step.source is not None:
            comm.receive(arriving, step.source)
        if step.reduce:
            np.add(own, arriving, out=own)
