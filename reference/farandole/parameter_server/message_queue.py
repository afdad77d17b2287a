"""Headers and payloads over MPI: non-blocking sends, and a queue of the headers that have arrived.

Requests go to services (servers, manager, aggregators, cleaning node), answers to clients. The two have different tags,
so that one rank can be both. A payload is a separate message. MPI keeps the order of messages between two ranks: the
next payload from a rank belongs to its last header.

Messages between two ranks do not involve the other ranks, so a failure need not interrupt them. A message to a dead
rank is dropped. A receive from any rank acknowledges the failure and continues (ULFM).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import NDArray

from farandole.parameter_server.header import FIELDS, REALS, Header
from farandole.runtime.communicator import Communicator
from farandole.runtime.failure import PeerLost

REQUEST, ANSWER, PAYLOAD, READ_DONE = 1, 2, 3, 4  # MPI tags

SPINS = 100  # polls before the first sleep: an answer often takes less time than a sleep
PAUSE_S = 50e-6
TICK_S = 0.005
LATEST_TICK_S = 0.1  # while messages keep arriving they come first, but a tick is not delayed beyond this

Sends = list[tuple[MPI.Request, Any]]  # with the buffers, which must live until the send is complete


class MessageQueue:
    """One thread's messages: those that it sends, and the headers with `tag` that arrive at this rank.

    Args:
        lost: the dead ranks, to which failures detected here are added; None: the first failure ends the job.
    """

    def __init__(self, comm: Communicator, tag: int, lost: set[int] | None = None) -> None:
        self.comm = comm
        self.tag = tag
        self.lost = lost
        self._changing: Sends = []  # buffers that the caller will change again
        self._constant: Sends = []  # buffers that no one changes any more
        self._ticked = self._polled = time.monotonic()

    def send(self, to: int, tag: int, header: Header) -> None:
        """Begin to send a header."""
        packed = pack(header)
        for sends in (self._changing, self._constant):
            sends[:] = [(request, buffer) for request, buffer in sends if not self._is_complete(request)]
        self._post(self._constant, packed, to, tag)

    def send_payload(self, to: int, buffer: Any, nbytes: int | None = None) -> None:
        """Begin to send the payload of the previous header; `buffer` must not change before `wait_for_sends`."""
        self._post(self._changing, buffer, to, PAYLOAD, nbytes)

    def forward(self, to: int, tag: int, header: Header, payload: Sequence[NDArray[Any]]) -> None:
        """Begin to send a header and a payload that will not change; `wait_for_sends` does not wait for it.

        So two servers that forward requests to each other never both block.
        """
        self.send(to, tag, header)
        for buffer in payload:
            self._post(self._constant, buffer, to, PAYLOAD)

    def wait_for_sends(self) -> None:
        """Block until every buffer that the caller may change has been sent."""
        with self.comm.waiting("parameters to leave", -1):
            self._wait_for(self._changing)

    def flush(self) -> None:
        """Block until everything has been sent."""
        self._wait_for(self._changing)
        self._wait_for(self._constant)

    def poll(self) -> Header | None:
        """Return the next header that has arrived; None: there is none."""
        self._polled = time.monotonic()
        try:
            source = self.comm.arrived(self.tag)
            if source is None:
                return None
            numbers = np.empty(len(FIELDS))
            self.comm.take(numbers, source, self.tag)
        except PeerLost as error:
            self.on_failure(error)
            return None
        return unpack(numbers, source)

    def missed(self) -> Header | None:
        """Return the next header if it has arrived while this thread polled for none, for a noticeable time."""
        if time.monotonic() - self._polled < LATEST_TICK_S:
            return None
        return self.poll() or self.poll()  # MPI may only begin to receive a message when it is first looked for

    def wait(self, tick: Callable[[], None]) -> Header:
        """Return the next header; call `tick` every few milliseconds meanwhile, less often if messages keep arriving.

        Between polls it sleeps, which leaves the core to ranks that compute. The wait has no time limit: a service that
        waits for requests must not report a hang. Clients that wait for an answer do, and so does the manager.
        """
        with self.comm.waiting("a message", -1):
            polls = 0
            while True:
                header = self.poll()
                if time.monotonic() - self._ticked > (LATEST_TICK_S if header else TICK_S):
                    self._ticked = time.monotonic()
                    with self.comm.working():
                        tick()
                if header:
                    return header
                polls += 1
                if polls > SPINS:
                    time.sleep(PAUSE_S)

    def receive(self, payload: Iterable[NDArray[Any]], source: int) -> None:
        """Receive the payload of a header that has arrived from `source`, in place; blocks until it is complete."""
        with self.comm.waiting("the rest of a message", source):
            for buffer in payload:
                self.comm.take(buffer, source, PAYLOAD)

    def on_failure(self, error: PeerLost) -> None:
        """Acknowledge the dead ranks and continue without them.

        Raises:
            PeerLost: `error` again, if the first failure ends the job.
        """
        if self.lost is None:
            raise error
        self.lost |= self.comm.acknowledge_the_lost()

    def _post(self, sends: Sends, buffer: Any, to: int, tag: int, nbytes: int | None = None) -> None:
        if self.lost and to in self.lost:
            return
        try:
            sends.append((self.comm.post(buffer, to, tag, nbytes), buffer))
        except PeerLost as error:
            self.on_failure(error)

    def _is_complete(self, request: MPI.Request) -> bool:
        try:
            with self.comm.naming_the_lost("send", MPI.ANY_SOURCE):
                return request.Test()
        except PeerLost as error:
            self.on_failure(error)
            return True

    def _wait_for(self, sends: Sends) -> None:
        for request, _ in sends:
            try:
                with self.comm.naming_the_lost("send", MPI.ANY_SOURCE):
                    request.Wait()
            except PeerLost as error:
                self.on_failure(error)
        sends.clear()


def pack(header: Header) -> NDArray[np.float64]:
    """Return a header as numbers; a float64 holds every integer below 2⁵³ exactly."""
    return np.array([getattr(header, name) for name in FIELDS], dtype=np.float64)


def unpack(numbers: NDArray[np.float64], source: int) -> Header:
    values = {name: value if name in REALS else int(value) for name, value in zip(FIELDS, numbers, strict=True)}
    return Header(**values | {"source": source})
