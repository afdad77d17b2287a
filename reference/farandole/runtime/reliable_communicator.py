"""The communicator for links that lose messages: `reliable` over MPI, with `lossy` injecting faults between the two.

    method ─ send, receive, exchange … ─→ Channel ─→ Lossy ─→ MPI ─→ … the peer's Channel ─→ method

In each group one thread makes all MPI calls for these messages. It puts messages on the link, acknowledges those that
arrive, and resends those that are not acknowledged in time, also while its rank computes. This communicator is used
only with such faults in `--fail`, or with `--checksum`; without them, messages go to MPI directly.

The payload counts as bytes sent, that of resent messages too; sequence numbers, checksums, acknowledgements and copies
made by the fault do not. Cost: a copy of each payload on either side, with `--checksum` a pass over it on either side,
and up to PAUSE_S per message.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from mpi4py import MPI

from farandole.errors import UsageError
from farandole.runtime.communicator import Buffer, Communicator, Pending
from farandole.runtime.event_queue import EventQueue
from farandole.runtime.lossy import Copy, Lossy, with_flipped_bit
from farandole.runtime.reliable import Channel, Frame, GaveUp

PAUSE_S = 100e-6
HEAD = 5  # numbers before the payload: sequence number, tag, whether it acknowledges, copy, checksum
NO_CHECKSUM = -1
LIMIT = 0.5  # share of --wait-timeout: the sender gives up first, since only it can name the message
Message = tuple[int, bytes]  # source, payload


class Later(Pending):
    """An exchange whose sends have been passed to the channel; `wait` fills the receive buffers."""

    def __init__(self, comm: ReliableCommunicator, source: int, buffers: Sequence[Buffer], tag: int) -> None:
        super().__init__(source, [], [], [], tag)
        self._comm, self._buffers = comm, buffers

    def wait(self) -> None:
        for place, buffer in enumerate(self._buffers):
            self.sizes.append(self._comm.fetch(buffer, self.source, self.tag + place))


class ReliableCommunicator(Communicator):
    """A `Communicator` over a lossy link.

    Args:
        lossy: decides which of this rank's messages are struck.
        give_up: ends the job for a given reason; called in the background thread.
        limit_s: seconds without acknowledgement after which a message is given up.
        checksums: whether messages that arrive changed are found, and sent again.

    Attributes:
        repeated, repeated_bytes: number of messages that were sent again, and their payload in bytes.
    """

    def __init__(
        self,
        mpi: MPI.Intracomm,
        *args: Any,
        lossy: Lossy,
        give_up: Callable[[str], None],
        limit_s: float,
        checksums: bool = False,
        **named: Any,
    ) -> None:
        super().__init__(mpi, *args, **named)
        self.lossy, self.give_up, self.limit_s, self.checksums = lossy, give_up, limit_s, checksums
        self.repeated = self.repeated_bytes = 0
        self._channels: defaultdict[int, Channel] = defaultdict(lambda: Channel(limit_s, checksums=checksums))
        self._inbox: defaultdict[int, deque[Message]] = defaultdict(deque)  # by tag, in order of arrival
        self._changed = threading.Condition()
        self._link = EventQueue[tuple[int, Frame]]()  # destinations and frames, at the times at which they leave
        self._leaving: list[tuple[MPI.Request, Any]] = []
        self._error: BaseException | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reliable delivery", daemon=True)
        self._thread.start()

    # Called by methods.

    def send(self, buffer: Buffer, to: int) -> None:
        self.post(buffer, to, 0)

    def receive(self, buffer: Buffer, source: int) -> None:
        with self.waiting("receive", source):
            nbytes = self.fetch(buffer, source, 0)
        self._arrived(nbytes, source)

    def exchange(self, send: Buffer, to: int, receive: Buffer, source: int) -> None:
        self.send(send, to)
        with self.waiting("exchange", source):
            nbytes = self.fetch(receive, source, 0)
        self._arrived(nbytes, source)

    def exchange_all(self, sends: Sequence[tuple[Buffer, int]], receives: Sequence[tuple[Buffer, int]]) -> None:
        for buffer, to in sends:
            self.send(buffer, to)
        for buffer, source in receives:
            self.receive(buffer, source)

    def post(self, buffer: Any, to: int, tag: int, nbytes: int | None = None) -> MPI.Request:
        """Pass a copy of `buffer` to the channel; the caller may change `buffer` at once."""
        self._carry(buffer.nbytes if nbytes is None else nbytes, to, tag)
        payload = self._packed(buffer)
        with self._changed:
            self._check()
            self._put(self._channels[to].send(tag, payload, time.monotonic()), to)
        return MPI.REQUEST_NULL

    def begin_exchange(
        self, send: Sequence[Buffer], to: int, receive: Sequence[Buffer], source: int, tag: int
    ) -> Pending:
        for place, buffer in enumerate(send):
            self.post(buffer, to, tag + place)
        return Later(self, source, receive, tag)

    def arrived(self, tag: int, source: int = MPI.ANY_SOURCE) -> int | None:
        with self.naming_the_lost("receive", source), self._changed:
            self._check()
            return next((each for each, _ in self._inbox[tag] if source in (each, MPI.ANY_SOURCE)), None)

    def take(self, buffer: Any, source: int, tag: int) -> None:
        with self.naming_the_lost("receive", source):
            nbytes = self.fetch(buffer, source, tag)
        self._arrived(nbytes, source, tag)

    def fetch(self, buffer: Any, source: int, tag: int) -> int:
        """Wait for the next message from `source` with `tag`, copy it to `buffer`, and return its size in bytes."""
        inbox = self._inbox[tag]
        with self._changed:
            while (found := next((message for message in inbox if message[0] == source), None)) is None:
                self._check()
                self._changed.wait()
            inbox.remove(found)
        self._unpack(found[1], buffer)
        return len(found[1])

    def _split_off(self, mpi: MPI.Intracomm, members: Sequence[int]) -> Communicator:
        return ReliableCommunicator(
            mpi,
            self._watchdog,
            self._recorder,
            members=members,
            link=self.link,
            traffic=self.traffic,
            lossy=self.lossy,
            give_up=self.give_up,
            limit_s=self.limit_s,
            checksums=self.checksums,
        )

    def refuse(self, what: str, instead: str = "choose another way") -> None:
        super().refuse(what, instead)
        option = "--fail …,how=drop strikes" if self.lossy.strikes else "--checksum covers"
        raise UsageError(f"{option} only our own messages, and {what} sends none of them: {instead}")

    def close(self) -> None:
        """End the threads. Call it once no rank of the group needs another message."""
        for group in self._groups:
            group.close()
        self._closed.set()
        self._thread.join()

    @property
    def bytes_sent(self) -> int:
        return super().bytes_sent + self.repeated_bytes

    @property
    def messages_sent(self) -> int:
        return super().messages_sent + self.repeated

    @property
    def delivery(self) -> dict[str, int]:
        found = {"repeated": self.repeated, "repeated_bytes": self.repeated_bytes}
        found["discarded"] = sum(channel.duplicates for channel in self._channels.values())
        found["corrupted"] = sum(channel.corrupted for channel in self._channels.values())
        for group in self._groups:
            for name, value in (group.delivery or {}).items():
                found[name] += value
        return found

    @property
    def struck(self) -> dict[str, int]:
        return dict(self.lossy.struck)

    # Run in the background thread.

    def _run(self) -> None:
        try:
            while not self._closed.is_set():
                if not self._take_one():
                    time.sleep(PAUSE_S)
                with self._changed:
                    again = self._due_again()
                    self._leave()
                if self.link and again:  # outside the lock: a slow link blocks here
                    self.link.send(again)
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _take_one(self) -> bool:
        """Receive one frame, if one has arrived: acknowledge it, and deliver the messages it completes."""
        status = MPI.Status()
        if not self.mpi.Iprobe(MPI.ANY_SOURCE, MPI.ANY_TAG, status):
            return False
        source, data = status.Get_source(), np.empty(status.Get_count(MPI.BYTE), np.uint8)
        self.mpi.Recv(data, source)
        number, tag, acknowledges, copy, checksum = (int(each) for each in data[: 8 * HEAD].view(np.int64))
        payload = None if acknowledges else data[8 * HEAD :].tobytes()
        frame = Frame(number, tag, payload, copy, None if checksum == NO_CHECKSUM else checksum)
        with self._changed:
            answer, delivered = self._channels[source].receive(frame, time.monotonic())
            if answer:
                self._put(answer, source)
            for each in delivered:
                assert each.payload is not None
                self._inbox[each.tag].append((source, each.payload))
            self._changed.notify_all()
        return True

    def _due_again(self) -> int:
        """Put messages that were not acknowledged in time on the link again; return their size in bytes."""
        sizes = []
        for peer, channel in self._channels.items():
            try:
                overdue = channel.again(time.monotonic())
            except GaveUp as error:
                self.give_up(
                    f"rank {self._named(peer)} has acknowledged none of {error.tries} copies of a message in "
                    f"{error.seconds:.1f} s: the link between them loses too much"
                )
                raise
            for frame in overdue:
                assert frame.payload is not None
                self._put(frame, peer)
                sizes.append(len(frame.payload))
        self.repeated += len(sizes)
        self.repeated_bytes += sum(sizes)
        return sum(sizes)

    def _put(self, frame: Frame, to: int) -> None:
        """Put a frame on the link with the copies and delays of its fate; a rank's message to itself is sent once."""
        step = self._recorder.step if self._recorder else -1
        fate = self.lossy.fate(step, self._named(to), frame) if to != self.rank else [Copy()]
        for copy in fate:
            sent = frame
            if copy.flipped is not None and frame.payload:
                sent = replace(frame, payload=with_flipped_bit(frame.payload, copy.flipped))
            self._link.add(time.monotonic() + copy.after_s, (to, sent))

    def _leave(self) -> None:
        """Pass the frames that are due to MPI."""
        self._leaving = [(request, data) for request, data in self._leaving if not request.Test()]
        for to, frame in self._link.events(until=time.monotonic()):
            checksum = NO_CHECKSUM if frame.checksum is None else frame.checksum
            head = np.array([frame.number, frame.tag, frame.payload is None, frame.copy, checksum], np.int64)
            data = np.frombuffer(head.tobytes() + (frame.payload or b""), np.uint8)
            self._leaving.append((self.mpi.Isend(data, to), data))

    def _check(self) -> None:
        if self._error:
            raise self._error

    def _packed(self, buffer: Any) -> bytes:
        if isinstance(buffer, np.ndarray):
            return buffer.tobytes()
        array, kind = _selection(buffer)
        data = bytearray(kind.size)
        if data:
            kind.Pack(array, data, 0, self.mpi)
        return bytes(data)

    def _unpack(self, payload: bytes, buffer: Any) -> None:
        if isinstance(buffer, np.ndarray):
            buffer.reshape(-1).view(np.uint8)[: len(payload)] = np.frombuffer(payload, np.uint8)
        elif payload:
            array, kind = _selection(buffer)
            kind.Unpack(bytearray(payload), 0, array, self.mpi)


def _selection(buffer: Any) -> tuple[Buffer, MPI.Datatype]:
    """Return an array as bytes, and the MPI type that selects some of its elements.

    mpi4py packs as many items of the type as its extent fits into the array; here this is exactly one.
    """
    array, _, kind = buffer
    return array.reshape(-1).view(np.uint8)[: kind.extent], kind
