"""Running a schedule over MPI: chunks become slices of a buffer, steps become messages.

Chunks to replace are received in place. The only extra memory is a scratch buffer for what the largest step adds, and
a copy of what a step packs, or sends and replaces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from farandole.collectives.all_to_all import PAIRWISE
from farandole.collectives.double_binary_tree import double_binary_tree
from farandole.collectives.ring import segmented
from farandole.collectives.steps import Exchange, Schedule, chunk_slices
from farandole.runtime.communicator import Buffer, Communicator

SEGMENT = 256 << 10  # bytes; what has arrived is still in a core's cache when it is added

AllReduce = Callable[[Communicator, Buffer], None]


class Placed(NamedTuple):
    """An exchange of chunks on vectors of one length.

    Attributes:
        to, source: for which rank a message leaves, and from which one arrives; None: there is none.
        leaving, arriving: the parts of the vector that it has: one, unless it is packed.
        packed: its parts are copied to one place, and back from there.
        reduce: add what arrives; otherwise it replaces what is there.
        scratch: the part of the scratch buffer where it arrives; None: it is packed, or arrives in its own place.
        copied: it is sent as it was before the step, in which its place is taken.
    """

    to: int | None
    source: int | None
    leaving: list[slice]
    arriving: list[slice]
    packed: bool
    reduce: bool
    scratch: slice | None
    copied: bool


class Plan(NamedTuple):
    """One rank's steps on vectors of one length, and the elements that its largest step adds."""

    steps: list[list[Placed]]
    scratch: int


@lru_cache
def _plan(schedule: Schedule, rank: int, size: int, length: int) -> Plan:
    """Return where the rank's messages lie. Kept, since a training sums vectors of one length again and again."""
    parts = chunk_slices(length, schedule.chunks(size))
    steps, most = [], 0
    for step in schedule.steps(rank, size):
        placed, used = [], 0
        for each in step.exchanges:
            leaving, arriving = _places(parts, each.sent, each), _places(parts, each.received, each)
            scratch = None
            if each.reduce and not each.offsets:
                scratch = slice(used, used + arriving[0].stop - arriving[0].start)
                used = scratch.stop
            packed = bool(each.offsets)
            placed.append(Placed(each.to, each.source, leaving, arriving, packed, each.reduce, scratch, each.swaps))
        steps.append(placed)
        most = max(most, used)
    return Plan(steps, most)


def _places(parts: list[slice], chunks: Sequence[int], exchange: Exchange) -> list[slice]:
    """Return where chunks lie: one slice, unless they are to be packed."""
    if exchange.offsets:
        return [parts[chunk] for chunk in chunks]
    return [slice(parts[chunks[0]].start, parts[chunks[-1]].stop) if chunks else slice(0, 0)]


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
    plan = _plan(schedule, comm.rank, comm.size, len(buffer))
    scratch = _room(buffer, plan.scratch)
    words, scratch_words = _on_wire(buffer), _on_wire(scratch)
    with np.errstate(over="ignore", invalid="ignore"):  # of a training that diverges, whose loss reports it
        for step in plan.steps:
            sends, receives, rooms = [], [], []
            for each in step:
                if each.to is not None:
                    sends.append((_leaving(words, each), each.to))
                if each.source is not None:
                    if each.packed:
                        room = _room(buffer, sum(part.stop - part.start for part in each.arriving))
                        rooms.append((each, room))
                        place = _on_wire(room)
                    elif each.scratch:
                        place = scratch_words[each.scratch]
                    else:
                        place = words[each.arriving[0]]
                    receives.append((place, each.source))
            _communicate(comm, sends, receives)
            for each, room in rooms:
                _unpack(buffer, each, room)
            for each in step:
                if each.scratch:
                    _add(buffer[each.arriving[0]], scratch[each.scratch])


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
    for step in PAIRWISE.steps(comm.rank, comm.size):
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


def _on_wire(vector: Any) -> Any:
    """Return the same memory, as a type that MPI knows: it has no float16."""
    if vector.dtype != np.float16:
        return vector
    return vector.view(np.uint16) if isinstance(vector, np.ndarray) else vector.as_words()


def _leaving(words: Any, each: Placed) -> Any:
    """Return what is sent; a copy where it is packed, or replaced in the same step."""
    if each.packed:
        is_array = isinstance(words, np.ndarray)
        return np.concatenate([words[part] for part in each.leaving]) if is_array else words.joined(each.leaving)
    own = words[each.leaving[0]]
    return own.copy() if each.copied else own


def _unpack(buffer: Any, each: Placed, arrived: Any) -> None:
    """Put one message's chunks into their places."""
    begin = 0
    for part in each.arriving:
        chunk = arrived[begin : begin + part.stop - part.start]
        if each.reduce:
            _add(buffer[part], chunk)
        else:
            buffer[part] = chunk
        begin += len(chunk)
