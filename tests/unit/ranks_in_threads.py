"""Ranks as threads of one process, with the calls of `Communicator` of the schedules and of the buddies' copies.

A buffer is sent as MPI sends it: the bytes of an array that is contiguous, in C or in Fortran order. A missing message
ends the test with an error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from queue import Queue
from typing import Any, TypeVar

import numpy as np

from farandole.runtime.communicator import Buffer

Result = TypeVar("Result")

LONG_S = 60.0  # only a test that fails waits for so long


class Group:
    """The ranks of one communicator.

    Attributes:
        late: ranks whose messages of a begun exchange arrive only when they are waited for.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.late: set[int] = set()
        self._messages: dict[tuple[int, int, int], Queue[bytes]] = {}  # source, to, tag
        self.given: list[Any] = [None] * size
        self.barrier = threading.Barrier(size)

    def messages(self, source: int, to: int, tag: int) -> Queue[bytes]:
        """Return the messages under way. With a defaultdict two threads might get different queues."""
        return self._messages.setdefault((source, to, tag), Queue())

    def run(self, program: Callable[[Rank], Result]) -> list[Result]:
        """Return what `program` returns on each rank, in rank order."""
        with ThreadPoolExecutor(self.size) as pool:
            return list(pool.map(program, [Rank(self, rank) for rank in range(self.size)], timeout=LONG_S))


class Exchange:
    """An exchange that has begun: the buffers to be filled, and the sources of their messages."""

    def __init__(self, receiving: Sequence[tuple[Buffer, Queue[bytes]]], late: bool) -> None:
        self.receiving, self.late = list(receiving), late

    def has_arrived(self) -> bool:
        if self.late:
            return False
        for buffer, queue in list(self.receiving):
            if queue.empty():
                return False
            fill(buffer, queue.get())
            self.receiving.remove((buffer, queue))
        return True

    def wait(self) -> None:
        for buffer, queue in self.receiving:
            fill(buffer, queue.get(timeout=LONG_S))


class Rank:
    """One rank's communicator, which is its own `mpi` as well."""

    def __init__(self, group: Group, rank: int) -> None:
        self.group, self.rank, self.size = group, rank, group.size
        self.mpi = self
        self.messages_sent = self.bytes_sent = 0

    def send(self, buffer: Buffer, to: int, tag: int = 0) -> None:
        assert buffer.flags.forc, "MPI sends contiguous arrays only"
        self.messages_sent += 1
        self.bytes_sent += buffer.nbytes
        self.group.messages(self.rank, to, tag).put(buffer.tobytes(order="A"))

    def receive(self, buffer: Buffer, source: int) -> None:
        fill(buffer, self.group.messages(source, self.rank, 0).get(timeout=LONG_S))

    Send, Recv = send, receive

    def exchange(self, send: Buffer, to: int, receive: Buffer, source: int) -> None:
        self.send(send, to)
        self.receive(receive, source)

    def collective(self, kind: str, size: int) -> AbstractContextManager[None]:
        return nullcontext()

    def exchange_all(self, sends: Sequence[tuple[Buffer, int]], receives: Sequence[tuple[Buffer, int]]) -> None:
        for buffer, to in sends:
            self.send(buffer, to)
        for buffer, source in receives:
            self.receive(buffer, source)

    def begin_exchange(
        self, send: Sequence[Buffer], to: int, receive: Sequence[Buffer], source: int, tag: int
    ) -> Exchange:
        for number, buffer in enumerate(send):
            self.send(buffer, to, tag + number)
        receiving = [(buffer, self.group.messages(source, self.rank, tag + n)) for n, buffer in enumerate(receive)]
        return Exchange(receiving, late=source in self.group.late)

    def complete(self, pending: Exchange) -> None:
        pending.wait()

    @contextmanager
    def waiting(self, call: str, peer: int) -> Iterator[None]:
        yield

    def Allgather(self, own: Buffer, every: Buffer) -> None:
        every[:] = np.concatenate(self._all(own))

    def Allgatherv(self, own: Buffer, every: tuple[Buffer, Buffer]) -> None:
        every[0][:] = np.concatenate(self._all(own))

    def Bcast(self, buffer: Buffer, root: int) -> None:
        buffer[:] = self._all(buffer)[root]

    def _all(self, own: Buffer) -> list[Buffer]:
        self.group.given[self.rank] = own.copy()
        self.group.barrier.wait(LONG_S)
        given = list(self.group.given)
        self.group.barrier.wait(LONG_S)
        return given


def fill(buffer: Buffer, data: bytes) -> None:
    assert buffer.flags.forc, "MPI fills contiguous arrays only"
    assert buffer.nbytes == len(data), "another message was expected"
    order = "C" if buffer.flags.c_contiguous else "F"
    buffer[...] = np.frombuffer(data, buffer.dtype).reshape(buffer.shape, order=order)  # type: ignore[call-overload]
