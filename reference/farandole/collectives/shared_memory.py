"""All-reduce through memory that all ranks of a node can address: no message at all.

Every rank's vector lies in one window (MPI's shared memory window), so each can read them all. Rank r adds up slice r
of all vectors and writes the sum back into all of them, or where each will fetch it.

    barrier    all vectors are complete
    add        rank r: slice r of vector 0 + slice r of vector 1 + …
    barrier    all slices are complete

This is not a schedule of messages, and the executor of schedules is not used. That makes it fast: a message through
shared memory is two copies, in and out, while here each number is read once, where it was computed.

Cost: two barriers, and for n bytes the memory's time for n read and n written by each of P ranks: what `SharedVectors`
does for vectors that live in the window. `all_reduce`, for any other, copies n in, reads n, writes n/P and copies n
out. For a short vector the barriers dominate, so each rank computes the whole sum itself after one barrier, with Pn
read. All add in the same order, so all ranks have the same bits.

This is memory of the host, and its cores add up. Gradients of a card are copied there and back (`FlatBuffers`). Where a
card's messages are to stay on cards, use a collective of messages with `--card-transport direct`, or NCCL by `ddp_sgd`.
Source: Hoefler et al., "MPI + MPI: a new hybrid approach to parallel programming with MPI plus shared memory", 2013.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
from mpi4py import MPI
from numpy.typing import DTypeLike

from farandole.collectives.steps import chunk_slice, chunk_slices
from farandole.errors import UsageError
from farandole.runtime.communicator import Buffer, Communicator
from farandole.runtime.shared_window import allocate

BLOCK = 256 << 10  # bytes that are added up at a time: their sum is still in the cache when the others get it
SHORT = 16 << 10  # bytes up to which a second barrier costs more than adding up everything


class SharedVectors:
    """One vector of each rank, in the memory of all. Made by all ranks together, all of one node.

    Args:
        length: of each vector, in elements.

    Attributes:
        own: this rank's, zero at first: what is to be summed up is put here. `all_reduce` leaves the sum here, `reduce`
            in rank 0's, whose own numbers are gone then, and `add_up` wherever the caller wants it.
        vectors: rank → its vector.

    Raises:
        UsageError: the ranks are on several nodes, shared memory is too small for the vectors, or `--link-mbps` is to
            slow down their messages.
    """

    def __init__(self, comm: Communicator, length: int, dtype: DTypeLike = np.float32) -> None:
        comm.refuse("shared memory")
        node = comm.mpi.Split_type(MPI.COMM_TYPE_SHARED)
        together = node.size == comm.size
        node.Free()
        if not together:
            raise UsageError(f"{comm.size} ranks on several nodes share no memory: use the hierarchical all-reduce")
        self.comm = comm
        kind = np.dtype(dtype)
        self._window = allocate(comm.mpi, length * kind.itemsize, kind.itemsize, "a --collective that sends messages")
        self._window.Lock_all(MPI.MODE_NOCHECK)
        self.vectors = [_view(self._window, rank, length, kind) for rank in range(comm.size)]
        self.own = self.vectors[comm.rank]
        self.own[:] = 0

    def all_reduce(self, part: Buffer | None = None) -> None:
        """Every rank's vector, or a part of it, becomes the sum of all. Collective.

        Args:
            part: a slice of `own`, the same on all ranks; None: all of it.
        """
        start, length = 0, len(self.own)
        if part is not None:
            start, length = (part.ctypes.data - self.own.ctypes.data) // part.itemsize, len(part)
        mine = chunk_slice(length, self.comm.size, self.comm.rank)
        self.meet()
        for total, block in self._add_up(slice(start + mine.start, start + mine.stop)):
            for vector in self.vectors[1:]:
                vector[block] = total
        self.meet()

    def reduce(self, parts: Sequence[slice]) -> Buffer:
        """Rank r forms part r of the sum, if there are more than r parts. Collective.

        Returns:
            Rank 0's vector, in which the sum is formed over what was there.

        No rank may read other parts, or change its own vector, before the next `meet`.
        """
        self.meet()
        if self.comm.rank < len(parts):
            for _ in self._add_up(parts[self.comm.rank]):
                pass
        return self.vectors[0]

    def add_up(self, into: Buffer) -> None:
        """Every rank computes the whole sum, of the first elements of each vector, for itself. Collective.

        No rank may change its vector before the next `meet`.
        """
        first, *others = self.vectors
        self.meet()
        into[:] = first[: len(into)]
        with np.errstate(over="ignore", invalid="ignore"):  # of a training that diverges, whose loss reports it
            for vector in others:
                into += vector[: len(into)]

    def meet(self) -> None:
        """Wait for all ranks, so that each can read afterwards what any has written before. Collective."""
        self._window.Sync()
        with self.comm.waiting("shared memory", -1):
            self.comm.mpi.Barrier()
        self._window.Sync()

    def free(self) -> None:
        """Give the memory back. Collective; the vectors are of no use afterwards."""
        self.vectors, self.own = [], np.empty(0)
        self._window.Unlock_all()
        self._window.Free()

    def _add_up(self, part: slice) -> Iterator[tuple[Buffer, slice]]:
        """Form a part of the sum in the first vector, and yield each block when it is done."""
        first, *others = self.vectors
        length = BLOCK // first.itemsize
        with np.errstate(over="ignore", invalid="ignore"):  # as above
            for start in range(part.start, part.stop, length):
                block = slice(start, min(start + length, part.stop))
                total = first[block]
                for vector in others:
                    np.add(total, vector[block], out=total)
                yield total, block


def all_reduce(comm: Communicator, buffer: Buffer) -> None:
    """Sum `buffer`, one contiguous vector, over all ranks, in place, wherever it lies. Collective.

    Raises:
        UsageError: the ranks are on several nodes.
    """
    vectors = window(comm, buffer)
    vectors.own[: len(buffer)] = buffer
    with comm.collective("all-reduce", buffer.nbytes):
        if buffer.nbytes <= SHORT:
            vectors.add_up(buffer)
            return
        total = vectors.reduce(chunk_slices(len(buffer), comm.size))
        vectors.meet()
    buffer[:] = total[: len(buffer)]


def window(comm: Communicator, buffer: Buffer) -> SharedVectors:
    """Return vectors of the type of `buffer`, at least as long, that no rank is using. Collective.

    There are two for each group and type, used in turn: a rank may fill one while another rank still reads the other.
    """
    name = f"shared memory for {buffer.dtype.str}"
    pair: list[SharedVectors] = comm.kept.get(name, [])
    if not pair or len(pair[0].own) < len(buffer):
        for each in pair:
            each.free()
        pair = [SharedVectors(comm, len(buffer), buffer.dtype) for _ in range(2)]
    pair.reverse()
    comm.kept[name] = pair
    return pair[0]


def _view(memory: MPI.Win, rank: int, length: int, kind: np.dtype[Any]) -> Buffer:
    """Return a rank's vector in the window."""
    place, _ = memory.Shared_query(rank)
    return np.ndarray(length, kind, cast(Any, place))
