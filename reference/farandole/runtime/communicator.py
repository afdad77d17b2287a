"""The one place where messages leave: counted, traced, and never waiting for ever.

A thin layer over an MPI communicator. Buffers are numpy arrays with a type MPI knows; nothing is
pickled. `send`, `receive` and `exchange` wait, under the watchdog's eye; `post`, `arrived` and
`take` are for event loops and threads, which see to the waiting themselves. `bytes_sent` and
`messages_sent` count the payload this rank has handed over, here and in the groups split off; what
MPI's own collectives move inside is theirs to know and is not counted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from farandole.runtime.failure import NoAnswer, PeerLost
from farandole.runtime.flight_recorder import NO_STEP, FlightRecorder
from farandole.runtime.links import Link, refuse
from farandole.runtime.traffic import CollectiveKind, Traffic, Unlogged
from farandole.runtime.wait import LOST, Wait
from farandole.runtime.watchdog import Watchdog

Buffer = NDArray[Any]


@dataclass
class Pending:
    """An exchange that has begun.

    Attributes:
        source: the rank that sends.
        receiving, sending: MPI's requests.
        sizes: bytes of each message to be received.
        tag: of the first one; those that follow have the next ones.
        begun: when, on `time.perf_counter`.
        broken: a rank has died in it.
    """

    source: int
    receiving: list[MPI.Request]
    sending: list[MPI.Request]
    sizes: list[int]
    tag: int = 0
    begun: float = field(default_factory=time.perf_counter)
    broken: bool = False

    def wait(self) -> None:
        """Return when all of it is done."""
        self.broken = True  # MPI forgets a request that has failed, and would report it as done
        for request in self.receiving + self.sending:
            request.Wait()
        self.broken = False

    def has_arrived(self) -> bool:
        """Return whether the message has arrived, though the group may have been revoked since."""
        if self.broken:
            return False
        try:
            return all(request.Test() for request in self.receiving)
        except MPI.Exception as error:
            if error.Get_error_class() in LOST:
                return False
            raise


class Communicator:
    """Point-to-point messages between the ranks of one group.

    Args:
        mpi: the MPI communicator beneath; use it directly for what needs no counting.
        watchdog: ends the job when a wait lasts too long; None: wait as long as MPI does.
        recorder: knows the current step, for messages.
        before: the communicator that this one replaces, and whose counts it continues.
        members: the number of each of this group's ranks among all; None: all were launched together.
        link: the simulated link to all other ranks; None: not slowed down.
        traffic: the log of this rank's messages; None: that of `before`, if there is one, or none is kept.

    Attributes:
        members, link: as given.
        traffic: the log of what this communicator, and those split off, send and receive.
        kept: what algorithms keep for this group from one call to the next: shared windows, groups within it.
    """

    def __init__(
        self,
        mpi: MPI.Intracomm,
        watchdog: Watchdog | None = None,
        recorder: FlightRecorder | None = None,
        before: Communicator | None = None,
        members: Sequence[int] | None = None,
        link: Link | None = None,
        traffic: Traffic | None = None,
    ) -> None:
        self.mpi = mpi
        self.link = link
        self.rank = mpi.rank
        self.size = mpi.size
        self._own_bytes = before.bytes_sent if before else 0
        self._own_messages = before.messages_sent if before else 0
        self._groups: list[Communicator] = []
        self.kept: dict[str, Any] = {}
        self.members = ranks_within(mpi, MPI.COMM_WORLD) if members is None else list(members)
        inherited = before.traffic if before else traffic
        self.traffic: Traffic = Unlogged() if inherited is None else inherited
        self._group = self.traffic.join(self.members)
        self._watchdog = watchdog
        self._recorder = recorder

    @property
    def delivery(self) -> dict[str, int] | None:
        """Counts of repeated and discarded messages under `--fail …,how=drop`; None without it (`Summary.delivery`)."""
        return None

    @property
    def struck(self) -> dict[str, int]:
        """Return the number of this rank's messages that each message fault has struck, by the fault's text."""
        return {}

    @property
    def bytes_sent(self) -> int:
        """Bytes of payload that this rank has sent, here and in the groups split off."""
        return self._own_bytes + sum(group.bytes_sent for group in self._groups)

    @property
    def messages_sent(self) -> int:
        """Messages that this rank has sent, here and in the groups split off."""
        return self._own_messages + sum(group.messages_sent for group in self._groups)

    def send(self, buffer: Buffer, to: int) -> None:
        """Send `buffer` to rank `to`; returns when it may be changed again."""
        self._carry(buffer.nbytes, to)
        with self.waiting("send", to):
            self.mpi.Send(buffer, to)

    def receive(self, buffer: Buffer, source: int) -> None:
        """Fill `buffer` with the next message of rank `source`."""
        with self.waiting("receive", source):
            self.mpi.Recv(buffer, source)
        self._arrived(buffer.nbytes, source)

    def exchange(self, send: Buffer, to: int, receive: Buffer, source: int) -> None:
        """Send to one rank and receive from another at the same time: cannot deadlock in a ring."""
        self._carry(send.nbytes, to)
        with self.waiting("exchange", source):
            self.mpi.Sendrecv(send, to, 0, receive, source, 0)
        self._arrived(receive.nbytes, source)

    def exchange_all(self, sends: Sequence[tuple[Buffer, int]], receives: Sequence[tuple[Buffer, int]]) -> None:
        """Send several messages and receive several at the same time; return when all are done.

        Messages between the same two ranks arrive in order.

        Args:
            sends: pairs of a buffer and its destination rank.
            receives: pairs of a buffer and its source rank.
        """
        begun = time.perf_counter()
        receiving, sending = [], []
        for buffer, source in receives:
            with self.naming_the_lost("exchange", source):
                receiving.append(self.mpi.Irecv(buffer, source, 0))
        for buffer, to in sends:
            self._carry(buffer.nbytes, to)  # a slow link carries them one after the other
            with self.naming_the_lost("exchange", to):
                sending.append(self.mpi.Isend(buffer, to, 0))
        for request, (_, source) in zip(receiving, receives, strict=True):
            with self.waiting("exchange", source):
                request.Wait()
        for request, (_, to) in zip(sending, sends, strict=True):
            with self.waiting("exchange", to):
                request.Wait()
        self._occupy(sum(buffer.nbytes for buffer, _ in receives), begun, len(receives))
        for buffer, source in receives:
            self.traffic.received(self._group, source, 0, buffer.nbytes)

    def post(self, buffer: Any, to: int, tag: int, nbytes: int | None = None) -> MPI.Request:
        """Begin to send, and return at once; `buffer` must stay as it is until the request is complete.

        Args:
            buffer: an array, or anything else that MPI takes; then `nbytes` says what to count.
        """
        self._carry(buffer.nbytes if nbytes is None else nbytes, to, tag)
        with self.naming_the_lost("send", to):
            return self.mpi.Isend(buffer, to, tag)

    def begin_exchange(
        self, send: Sequence[Buffer], to: int, receive: Sequence[Buffer], source: int, tag: int
    ) -> Pending:
        """Begin to send to one rank and to receive from another; the buffers must stay as they are until `complete`.

        Args:
            tag: of the first message each way; those that follow have the next ones.
        """
        for number, buffer in enumerate(send):
            self._carry(buffer.nbytes, to, tag + number)
        with self.naming_the_lost("exchange", source):
            receiving = [self.mpi.Irecv(buffer, source, tag + number) for number, buffer in enumerate(receive)]
            sending = [self.mpi.Isend(buffer, to, tag + number) for number, buffer in enumerate(send)]
        return Pending(source, receiving, sending, [buffer.nbytes for buffer in receive], tag)

    def complete(self, pending: Pending) -> None:
        """Return when what was begun is done."""
        with self.waiting("exchange", pending.source):
            pending.wait()
        self._occupy(sum(pending.sizes), pending.begun, len(pending.sizes))
        for number, nbytes in enumerate(pending.sizes):
            self.traffic.received(self._group, pending.source, pending.tag + number, nbytes)

    def arrived(self, tag: int, source: int = MPI.ANY_SOURCE) -> int | None:
        """Return the rank whose next message with `tag` has arrived; None if there is none."""
        status = MPI.Status()
        with self.naming_the_lost("receive", source):
            return status.Get_source() if self.mpi.Iprobe(source, tag, status) else None

    def take(self, buffer: Any, source: int, tag: int) -> None:
        """Fill `buffer` with the next message of `source` with `tag`, which has arrived. Has no time-out."""
        status = MPI.Status()
        with self.naming_the_lost("receive", source):
            self.mpi.Recv(buffer, source, tag, status)
        self._arrived(status.Get_count(MPI.BYTE), source, tag)

    def acknowledge_the_lost(self) -> set[int]:
        """Return the ranks of the group known to have died; receiving from any source now works without them.

        Needs an MPI that survives the death of processes (ULFM), as `revoke` does.
        """
        self.mpi.Ack_failed()
        return set(self._failed())

    def barrier(self) -> None:
        """Return once every rank of the group has called it."""
        with self.waiting("barrier", -1):
            self.mpi.Barrier()

    def mpi_all_reduce(self, buffer: Buffer) -> None:
        """MPI's own all-reduce (sum, in place): the peer our algorithms are compared with. Not counted."""
        self.refuse("MPI's own all-reduce")
        with self.collective("all-reduce", buffer.nbytes), self.waiting("MPI all-reduce", -1):
            self.mpi.Allreduce(MPI.IN_PLACE, buffer)

    def collective(self, kind: CollectiveKind, size: int) -> AbstractContextManager[None]:
        """Log the messages of the body as one operation of this group, in which each rank gives `size` bytes."""
        return self.traffic.collective(self._group, kind, size) if self.size > 1 else nullcontext()

    def split(self, color: int, key: int) -> Communicator:
        """Return the group of all ranks that give the same `color`, in order of `key`. Collective."""
        part = MPI.Intracomm(self.mpi.Split(color, key))
        group = self._split_off(part, [self.members[rank] for rank in ranks_within(part, self.mpi)])
        self._groups.append(group)
        return group

    def _split_off(self, mpi: MPI.Intracomm, members: Sequence[int]) -> Communicator:
        return Communicator(mpi, self._watchdog, self._recorder, members=members, link=self.link, traffic=self.traffic)

    def close(self) -> None:
        """End background threads. Call it once no rank of the group needs another message."""

    def refuse(self, what: str, instead: str = "choose another way") -> None:
        """Refuse a method that bypasses this communicator, if its links are to slow down or lose messages.

        Args:
            what: the method, for the message.
            instead: the remedy, for the message.

        Raises:
            UsageError: the link is slow or loses messages.
        """
        refuse(self.link, what, instead)

    def revoke(self) -> None:
        """Wake every rank that waits in this group, or in one split off, with `PeerLost`; the group is of no use after.

        Needs an MPI that outlives its processes (ULFM).
        """
        for group in self._groups:
            group.revoke()
        self.mpi.Revoke()

    def waiting(self, call: str, peer: int) -> Wait:
        """Put a time-out on the body, and name the rank if it turns out to have died. One may be within another."""
        return Wait(self._lost, call, peer, self._watchdog, self._named(peer))

    @contextmanager
    def working(self) -> Iterator[None]:
        """Within `waiting`: the body is work of this rank's own, in which it may hang. Then it waits anew."""
        if self._recorder:
            self._recorder.works_meanwhile()
        try:
            yield
        finally:
            if self._watchdog:
                self._watchdog.wait_anew()

    def naming_the_lost(self, call: str, peer: int) -> Wait:
        """Name the rank if it turns out to have died, for what does not wait or is waited for elsewhere."""
        return Wait(self._lost, call, peer)

    @contextmanager
    def waiting_for_library(self, call: str, sign: str) -> Iterator[None]:
        """`waiting`, around a library that communicates by itself.

        Args:
            sign: a word in the library's own errors, which distinguishes them from errors in the body.
        """
        try:
            with self.waiting(call, -1):
                yield
        except RuntimeError as error:
            if sign not in str(error):
                raise
            raise NoAnswer(f"got no answer in {call}: {str(error).splitlines()[0]}") from error

    def _count(self, nbytes: int) -> None:
        self._own_bytes += nbytes
        self._own_messages += 1

    def _carry(self, nbytes: int, to: int, tag: int = 0) -> None:
        """Count and log a message that is sent, and occupy the link."""
        self._count(nbytes)
        self.traffic.sent(self._group, to, tag, nbytes)
        if self.link:
            self.link.send(nbytes)

    def _arrived(self, nbytes: int, source: int, tag: int = 0) -> None:
        """Occupy the link with a message that has arrived, and log it."""
        self._occupy(nbytes)
        self.traffic.received(self._group, source, tag, nbytes)

    def _occupy(self, nbytes: int, expected: float | None = None, messages: int = 1) -> None:
        """Occupy the link with what has arrived."""
        if self.link:
            self.link.receive(nbytes, expected, messages)

    def _named(self, rank: int) -> int:
        """Return the number among all ranks of a rank of this group; -1, no particular rank, stays -1."""
        return self.members[rank] if rank >= 0 else rank

    def _failed(self) -> list[int]:
        """Return the ranks of this group that are known to have died."""
        group = self.mpi.Get_failed()
        return [rank for rank in group.Translate_ranks(list(range(group.size)), self.mpi.Get_group()) if rank >= 0]

    def _lost(self, call: str, peer: int) -> PeerLost:
        ranks = [self._named(rank) for rank in self._failed()]
        names = f"rank {', '.join(map(str, ranks))}" if ranks else "a rank"
        step = "" if self._recorder is None or self._recorder.step == NO_STEP else f" at step {self._recorder.step}"
        partner = f" with rank {self._named(peer)}" if peer >= 0 else ""
        return PeerLost(f"found {names} dead{step}, in {call}{partner}", ranks)


def ranks_within(part: MPI.Intracomm, whole: MPI.Intracomm) -> list[int]:
    """Return the rank in `whole` of each process in `part`."""
    return list(part.Get_group().Translate_ranks(list(range(part.size)), whole.Get_group()))


def as_buffer(text: str) -> Buffer:
    """Text as bytes that MPI can send."""
    return np.frombuffer(text.encode(), dtype=np.uint8)


def gather_text(mpi: MPI.Intracomm, text: str, root: int = 0) -> list[str]:
    """Return every rank's `text`, in rank order, on `root`; an empty list elsewhere. Collective."""
    own = as_buffer(text)
    lengths = np.zeros(mpi.size, dtype=np.int64)
    mpi.Gather(np.array([own.size], dtype=np.int64), lengths if mpi.rank == root else None, root)
    if mpi.rank != root:
        mpi.Gatherv(own, None, root)
        return []
    everything = np.empty(int(lengths.sum()), dtype=np.uint8)
    mpi.Gatherv(own, [everything, lengths], root)
    parts = np.split(everything, np.cumsum(lengths)[:-1])
    return [part.tobytes().decode() for part in parts]


def all_gather_text(mpi: MPI.Intracomm, text: str) -> list[str]:
    """Return every rank's `text`, in rank order, on every rank. Collective."""
    own = as_buffer(text)
    lengths = np.empty(mpi.size, dtype=np.int64)
    mpi.Allgather(np.array([own.size], dtype=np.int64), lengths)
    everything = np.empty(int(lengths.sum()), dtype=np.uint8)
    mpi.Allgatherv(own, [everything, lengths])
    parts = np.split(everything, np.cumsum(lengths)[:-1])
    return [part.tobytes().decode() for part in parts]


def broadcast_text(mpi: MPI.Intracomm, text: str, root: int = 0) -> str:
    """`root`'s text on every rank. Collective."""
    return broadcast_bytes(mpi, as_buffer(text), root).decode()


def broadcast_bytes(mpi: MPI.Intracomm, data: Buffer | None, root: int = 0) -> bytes:
    """`root`'s `data`, an array of bytes, on every rank. Collective."""
    length = np.array([data.size if data is not None else 0], dtype=np.int64)
    mpi.Bcast(length, root)
    buffer = data.copy() if data is not None and mpi.rank == root else np.empty(int(length[0]), dtype=np.uint8)
    mpi.Bcast(buffer, root)
    return buffer.tobytes()
