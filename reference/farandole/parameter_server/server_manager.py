"""The server manager: puts servers on the hash ring, and takes them off, while the training goes on.

Document 004 gives it the server group to maintain. A change takes place at a border: no worker starts iteration c,
which every server knows beforehand, until it is over. So no gradient is on its way, and every policy stands
at the same clock on all servers.

    servers → manager   READY      every worker that is left waits to start iteration c
    manager → servers   RING       the servers from now on: their numbers, from which everybody computes who has what
    server  → workers   MOVED      the pull that waits is to be put to these servers
    server  → server    MOVE       the keys that change hands, with what the update rule remembers of them
    servers → manager   SETTLED    everything has come; pulls are granted again

By consistent hashing about 1/S of the keys move when one of S servers comes or goes (`keys`); with equal parts,
half of them.
Cost: the keys that move, once for the parameters and once for each array that the rule remembers; five headers a
server and two a worker; and the wait of the workers at the border for the slowest.
Source: Li et al., OSDI 2014 (server manager; ranges move when servers join or leave).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from farandole.parameter_server.header import ROW_NUMBER, Header, Kind
from farandole.parameter_server.mailbox import REQUEST, Mailbox
from farandole.parameter_server.server_change import ServerChange


class ServerManager:
    """The manager's part in the changes.

    Args:
        servers: all that were launched, those that stand by included.
        ring: those that have keys at the start.

    Attributes:
        done: what has been changed, as the record has it (`Summary.server_changes`).
    """

    kinds = frozenset({Kind.READY, Kind.SETTLED})

    def __init__(
        self, mailbox: Mailbox, servers: Sequence[int], ring: Sequence[int], changes: Sequence[ServerChange]
    ) -> None:
        self.mailbox, self.servers, self.ring = mailbox, sorted(servers), list(ring)
        self.done: list[dict[str, Any]] = []
        self._changes = list(changes)
        self._waiting_for = set(self.ring)
        self._keys = self._nbytes = 0
        self._began = 0.0

    def handle(self, header: Header) -> None:
        if header.kind == Kind.SETTLED:
            moved = np.empty(2, np.int64)
            self.mailbox.take([moved], header.source)
            self._keys, self._nbytes = self._keys + int(moved[0]), self._nbytes + int(moved[1])
        elif self._waiting_for == set(self.ring):
            self._began = time.perf_counter()
        self._waiting_for.discard(header.source)
        if not self._waiting_for:
            self._end() if header.kind == Kind.SETTLED else self._announce()

    def tick(self) -> None:
        pass

    def miss(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def _announce(self) -> None:
        """All stand at the border: say who has the keys from now on, also to those that stand by."""
        self.ring = self.servers[: self._changes[0].servers]
        self._waiting_for = set(self.servers)
        ring = np.array(self.ring, ROW_NUMBER)
        for server in self.servers:
            self.mailbox.hand_on(server, REQUEST, Header(Kind.RING, count=len(ring)), [ring])

    def _end(self) -> None:
        change = self._changes.pop(0)
        self.done.append(
            {
                "step": change.step,
                "servers": self.ring,
                "keys": self._keys,
                "bytes": self._nbytes,
                "seconds": time.perf_counter() - self._began,
            }
        )
        self._keys = self._nbytes = 0
        self._waiting_for = set(self.ring)
