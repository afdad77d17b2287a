"""Running a schedule over MPI: chunks become slices of a buffer, steps become messages.

Chunks to replace are received in place. The only extra memory is a scratch buffer for what the largest step adds, and
a copy of what a step packs, or sends and replaces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

import numpy as np

from farandole.collectives.all_to_all import PAIRWISE
from farandole.collectives.double_binary_tree import double_binary_tree
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
            float64, any integer) or float16, the same length and type on all ranks; or one that MPI reads on a card
            (`runtime.card_vector`), where it is then added up, too.

    Raises:
        ValueError: `buffer` is not one contiguous vector.
    """
    if isinstance(buffer, np.ndarray) and (buffer.ndim != 1 or not buffer.flags.c_contiguous):
        raise ValueError(f"one contiguous vector is needed, not shape {buffer.shape}: give buffer.reshape(-1)")
    with _logged(schedule, comm, buffer.nbytes):
        _run(schedule, comm, buffer)


def _run(schedule: Schedule, comm: Communicator, buffer: Buffer) -> None:
    plan = _plan(schedule, comm.rank, comm.size)
    parts = chunk_slices(len(buffer), schedule.chunks(comm.size))
    added = (sum(_length(parts, each.received) for each in step.exchanges if each.reduce) for step in plan)
    scratch = _room(buffer, max(added, default=0))
    for step in plan:
        sends, receives, sums, packed, used = [], [], [], [], 0
        for each in step.exchanges:
            if each.offsets:
                arriving = _room(buffer, _length(parts, each.received))
                packed.append((each, arriving))
            else:
                own = arriving = buffer[_span(parts, each.received)]
                if each.reduce:
                    arriving = scratch[used : used + len(own)]
                    used += len(own)
                    sums.append((own, arriving))
            if each.to is not None:
                sends.append((_on_wire(_leaving(buffer, parts, each)), each.to))
            if each.source is not None:
                receives.append((_on_wire(arriving), each.source))
        _communicate(comm, sends, receives)
        for each, arriving in packed:
            _unpack(arriving, buffer, [parts[chunk] for chunk in each.received], add=each.reduce)
        with np.errstate(over="ignore", invalid="ignore"):  # of a training that diverges, whose loss reports it
            for own, arriving in sums:
                _add(own, arriving)


def run_all_to_all(schedule: Schedule, comm: Communicator, blocks: Buffer) -> Buffer:
    """Return the blocks that all ranks have for this one, in order of the ranks. Collective.

    Args:
        schedule: an all-to-all.
        blocks: (ranks, …), contiguous; block s is for rank s. The shape and the type are the same on all ranks.
    """
    there = [(comm.rank + distance) % comm.size for distance in range(comm.size)]
    back = [(comm.rank - distance) % comm.size for distance in range(comm.size)]
    moving = blocks[there]  # a copy, in which block i is for the rank i further on
    run(schedule, comm, moving.reshape(-1))
    return moving[back]  # the block from rank s has come the distance rank − s


def run_unequal_all_to_all(comm: Communicator, leaving: Sequence[Buffer], arriving: Sequence[Buffer]) -> None:
    """Send `leaving[s]` to rank s, and fill `arriving[s]` with what rank s has for this one. Collective.

    The pairwise all-to-all with blocks of any lengths, as MPI_Alltoallv; both sides know the length of each block. An
    empty block is no message.

    Args:
        leaving, arriving: a contiguous array for each rank, all of one type that MPI knows.

    Cost: at most (P−1)α, and nβ for the n bytes that leave for other ranks, or arrive, whichever are more.
    """
    arriving[comm.rank][...] = leaving[comm.rank]
    for step in _plan(PAIRWISE, comm.rank, comm.size):
        for each in step.exchanges:
            assert each.to is not None
            assert each.source is not None
            sends = [(leaving[each.to], each.to)] if leaving[each.to].size else []
            receives = [(arriving[each.source], each.source)] if arriving[each.source].size else []
            _communicate(comm, sends, receives)


def run_segmented_ring(comm: Communicator, buffer: Buffer) -> None:
    """The ring, in messages of `SEGMENT` bytes at most. Collective."""
    chunk = -(-buffer.nbytes // comm.size)
    run(segmented(max(1, -(-chunk // SEGMENT))), comm, buffer)


def run_double_binary_tree(comm: Communicator, buffer: Buffer) -> None:
    """Each half up and down its tree, in messages of `SEGMENT` bytes at most. Collective."""
    half = -(-buffer.nbytes // 2)
    run(double_binary_tree(max(1, -(-half // SEGMENT))), comm, buffer)


def _logged(schedule: Schedule, comm: Communicator, nbytes: int) -> AbstractContextManager[None]:
    """Log the messages of a schedule on a vector of `nbytes` as one operation, if it is one that traces know."""
    if schedule.operation is None:
        return nullcontext()
    given = -(-nbytes // comm.size) if schedule.operation == "all-gather" else nbytes
    return comm.collective(schedule.operation, given)


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


def _room(buffer: Any, length: int) -> Any:
    """Return a new vector of the type of `buffer`, and on its device."""
    return np.empty(length, buffer.dtype) if isinstance(buffer, np.ndarray) else buffer.room(length)


def _add(own: Any, arrived: Any) -> None:
    if isinstance(own, np.ndarray):
        np.add(own, arrived, out=own)
    else:
        own.add(arrived)


def _on_wire(part: Any) -> Any:
    """Return the same memory, as a type that MPI knows: it has no float16."""
    if part.dtype != np.float16:
        return part
    return part.view(np.uint16) if isinstance(part, np.ndarray) else part.as_words()


def _leaving(buffer: Any, parts: list[slice], exchange: Exchange) -> Any:
    """Return what is sent; a copy where it is packed, or replaced in the same step."""
    if exchange.offsets:
        sent = [parts[chunk] for chunk in exchange.sent]
        is_array = isinstance(buffer, np.ndarray)
        return np.concatenate([buffer[part] for part in sent]) if is_array else buffer.joined(sent)
    own = buffer[_span(parts, exchange.sent)]
    return own.copy() if exchange.swaps else own


def _unpack(arrived: Any, buffer: Any, parts: list[slice], *, add: bool) -> None:
    """Put one message's chunks into their places."""
    begin = 0
    for part in parts:
        chunk = arrived[begin : begin + part.stop - part.start]
        if add:
            _add(buffer[part], chunk)
        else:
            buffer[part] = chunk
        begin += len(chunk)


def _length(parts: list[slice], chunks: Sequence[int]) -> int:
    """Return the number of elements of these chunks."""
    return sum(parts[chunk].stop - parts[chunk].start for chunk in chunks)


def _span(parts: list[slice], chunks: Sequence[int]) -> slice:
    """Where chunks that follow each other lie in the vector."""
    return slice(parts[chunks[0]].start, parts[chunks[-1]].stop) if chunks else slice(0, 0)
