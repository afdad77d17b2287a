"""Headers and payloads on their way: sending without waiting, and taking in what has come.

Requests go to services (servers, manager, aggregators, cleaning node), answers to clients; the two
have different tags, so that one rank can be both. A payload is a message of its own. MPI keeps the
order of messages between two ranks: the payload that comes next from a rank is its last header's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI

from farandole.parameter_server.header import FIELDS, Header, pack, unpack
from farandole.runtime.communicator import Communicator

REQUEST, ANSWER, PAYLOAD, READ_DONE = 1, 2, 3, 4  # MPI tags

SPINS = 100  # looks before the first sleep: an answer often takes less than a sleep would
PAUSE_S = 50e-6
TICK_S = 0.005


class Mailbox:
    """One thread's post: what it sends, and the headers with `tag` that come to this rank."""

    def __init__(self, comm: Communicator, tag: int) -> None:
        self.comm = comm
        self.tag = tag
        self._leaving: list[tuple[MPI.Request, Any]] = []

    def send(self, to: int, tag: int, header: Header) -> None:
        """Begin to send a header."""
        packed = pack(header)
        self._leaving = [(request, buffer) for request, buffer in self._leaving if not request.Test()]
        self._leaving.append((self.comm.post(packed, to, tag), packed))

    def send_payload(self, to: int, buffer: Any, nbytes: int | None = None) -> None:
        """Begin to send what belongs to the header before; it must stay as it is until `settle`."""
        self._leaving.append((self.comm.post(buffer, to, PAYLOAD, nbytes), buffer))

    def settle(self) -> None:
        """Wait until everything that was sent has left."""
        with self.comm.naming_the_lost("send", MPI.ANY_SOURCE):
            MPI.Request.Waitall([request for request, _ in self._leaving])
        self._leaving.clear()

    def look(self) -> Header | None:
        """The next header, if one has come."""
        source = self.comm.arrived(self.tag)
        if source is None:
            return None
        numbers = np.empty(len(FIELDS))
        self.comm.take(numbers, source, self.tag)
        return unpack(numbers, source)

    def wait(self, tick: Callable[[], None]) -> Header:
        """The next header; `tick` is called every few milliseconds until it comes.

        Between looks it sleeps, so that a waiting service leaves its core to those that compute.
        """
        with self.comm.waiting("a message", -1):
            looks, ticked = 0, time.monotonic()
            while (header := self.look()) is None:
                looks += 1
                if time.monotonic() - ticked > TICK_S:
                    ticked = time.monotonic()
                    tick()
                if looks > SPINS:
                    time.sleep(PAUSE_S)
        return header
