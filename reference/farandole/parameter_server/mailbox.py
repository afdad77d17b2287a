"""Headers and payloads on their way: sending without waiting, and taking in what has come.

Requests go to services (servers, manager, aggregators, cleaning node), answers to clients; the two
have different tags, so that one rank can be both. A payload is a message of its own. MPI keeps the
order of messages between two ranks: the payload that comes next from a rank is its last header's.

Messages between two ranks do not need the others, so a death need not interrupt them: what was to go to
the dead is dropped, and who waits for anybody's message acknowledges the death and goes on waiting (ULFM).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from farandole.parameter_server.header import FIELDS, Header, pack, unpack
from farandole.runtime.communicator import Communicator
from farandole.runtime.failure import PeerLost

REQUEST, ANSWER, PAYLOAD, READ_DONE = 1, 2, 3, 4  # MPI tags

SPINS = 100  # looks before the first sleep: an answer often takes less than a sleep would
PAUSE_S = 50e-6
TICK_S = 0.005
LATEST_TICK_S = 0.1  # if there is always a message: those that have come go first, but not for ever


class Mailbox:
    """One thread's post: what it sends, and the headers with `tag` that come to this rank.

    Args:
        lost: the ranks that have died, to which this adds those it finds; None: the first death is the end.
    """

    def __init__(self, comm: Communicator, tag: int, lost: set[int] | None = None) -> None:
        self.comm = comm
        self.tag = tag
        self.lost = lost
        self._leaving: list[tuple[MPI.Request, Any]] = []  # what must not change meanwhile
        self._unchanging: list[tuple[MPI.Request, Any]] = []  # what nobody changes any more
        self._ticked = time.monotonic()

    def send(self, to: int, tag: int, header: Header) -> None:
        """Begin to send a header."""
        packed = pack(header)
        for queue in (self._leaving, self._unchanging):
            queue[:] = [(request, buffer) for request, buffer in queue if not self._has_left(request)]
        self._post(self._unchanging, packed, to, tag)

    def send_payload(self, to: int, buffer: Any, nbytes: int | None = None) -> None:
        """Begin to send what belongs to the header before; it must stay as it is until `settle`."""
        self._post(self._leaving, buffer, to, PAYLOAD, nbytes)

    def hand_on(self, to: int, tag: int, header: Header, payload: Sequence[NDArray[Any]]) -> None:
        """Begin to send a header and what belongs to it, which nobody will change: `settle` does not wait for it.

        So two servers that hand things on to each other never both wait.
        """
        self.send(to, tag, header)
        for buffer in payload:
            self._post(self._unchanging, buffer, to, PAYLOAD)

    def settle(self) -> None:
        """Wait until everything that might be changed has left."""
        with self.comm.waiting("parameters to leave", -1):
            self._wait_for(self._leaving)

    def flush(self) -> None:
        """Wait until everything has left."""
        self._wait_for(self._leaving)
        self._wait_for(self._unchanging)

    def look(self) -> Header | None:
        """The next header, if one has come."""
        try:
            source = self.comm.arrived(self.tag)
            if source is None:
                return None
            numbers = np.empty(len(FIELDS))
            self.comm.take(numbers, source, self.tag)
        except PeerLost as error:
            self.note_loss(error)
            return None
        return unpack(numbers, source)

    def note_loss(self, error: PeerLost) -> None:
        """Somebody has died: go on without, or raise `error` again."""
        if self.lost is None:
            raise error
        self.lost |= self.comm.acknowledge_the_lost()

    def _post(
        self, queue: list[tuple[MPI.Request, Any]], buffer: Any, to: int, tag: int, nbytes: int | None = None
    ) -> None:
        if self.lost and to in self.lost:
            return
        try:
            queue.append((self.comm.post(buffer, to, tag, nbytes), buffer))
        except PeerLost as error:
            self.note_loss(error)

    def _has_left(self, request: MPI.Request) -> bool:
        try:
            with self.comm.naming_the_lost("send", MPI.ANY_SOURCE):
                return request.Test()
        except PeerLost as error:
            self.note_loss(error)
            return True

    def _wait_for(self, queue: list[tuple[MPI.Request, Any]]) -> None:
        for request, _ in queue:
            try:
                with self.comm.naming_the_lost("send", MPI.ANY_SOURCE):
                    request.Wait()
            except PeerLost as error:
                self.note_loss(error)
        queue.clear()

    def wait(self, tick: Callable[[], None]) -> Header:
        """The next header; until it comes, and now and then if there always is one, `tick` is called.

        Between looks it sleeps, so that a waiting service leaves its core to those that compute. How long that may last
        is not limited: whoever needs nobody for now is not the one to say that others hang. Those who wait for an
        answer do, and the manager.
        """
        with self.comm.waiting("a message", -1):
            looks = 0
            while True:
                header = self.look()
                if time.monotonic() - self._ticked > (LATEST_TICK_S if header else TICK_S):
                    self._ticked = time.monotonic()
                    with self.comm.working():
                        tick()
                if header:
                    return header
                looks += 1
                if looks > SPINS:
                    time.sleep(PAUSE_S)

    def take(self, payload: Iterable[NDArray[Any]], source: int) -> None:
        """Wait for what belongs to a header of `source` that has come."""
        with self.comm.waiting("the rest of a message", source):
            for buffer in payload:
                self.comm.take(buffer, source, PAYLOAD)
