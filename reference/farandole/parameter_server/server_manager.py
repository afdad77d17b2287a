"""The server manager: adds servers to the hash ring, and removes them, during the training.

In document 004 it maintains the server group. A change takes place at a border: no worker starts iteration c, which
every server knows beforehand, until the change is complete. So no gradient is on its way, and the policy has the same
clocks on all servers.

    servers → manager   READY      all remaining workers wait to start iteration c
    manager → servers   RING       the servers from now on: their numbers, from which each rank computes the assignment
    server  → workers   MOVED      send the waiting pull to these servers
    server  → server    MOVE       the keys that move, with the update rule's state for them
    servers → manager   COMPLETE   all keys have arrived; pulls are granted again

With consistent hashing about 1/S of the keys move when one of S servers joins or leaves (`keys`); with equal parts,
half of them.

Cost: the keys that move, once for the parameters and once for each array of the rule's state; five headers per server
and two per worker; and the workers' wait at the border for the slowest.
Source: Li et al., "Scaling distributed machine learning with the parameter server", 2014 (server manager; ranges move
when servers join or leave).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from farandole.parameter_server.header import ROW_NUMBER, Header, Kind
from farandole.parameter_server.message_queue import REQUEST, MessageQueue
from farandole.parameter_server.server_change import ServerChange


class ServerManager:
    """The manager's part in the changes.

    Args:
        servers: all launched servers, those that stand by included.
        ring: those that have keys at the start.

    Attributes:
        done: the completed changes, in the record's form (`Summary.server_changes`).
    """

    kinds = frozenset({Kind.READY, Kind.COMPLETE})

    def __init__(
        self, messages: MessageQueue, servers: Sequence[int], ring: Sequence[int], changes: Sequence[ServerChange]
    ) -> None:
        self.messages, self.servers, self.ring = messages, sorted(servers), list(ring)
        self.done: list[dict[str, Any]] = []
        self._changes = list(changes)
        self._waiting_for = set(self.ring)
        self._keys = self._nbytes = 0
        self._began = 0.0

    def handle(self, header: Header) -> None:
        if header.kind == Kind.COMPLETE:
            moved = np.empty(2, np.int64)
            self.messages.receive([moved], header.source)
            self._keys, self._nbytes = self._keys + int(moved[0]), self._nbytes + int(moved[1])
        elif self._waiting_for == set(self.ring):
            self._began = time.perf_counter()
        self._waiting_for.discard(header.source)
        if not self._waiting_for:
            self._end() if header.kind == Kind.COMPLETE else self._announce()

    def tick(self) -> None:
        pass

    def on_failure(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def _announce(self) -> None:
        """Announce the new ring to all servers, those that stand by included; all workers wait at the border."""
        self.ring = self.servers[: self._changes[0].servers]
        self._waiting_for = set(self.servers)
        ring = np.array(self.ring, ROW_NUMBER)
        for server in self.servers:
            self.messages.forward(server, REQUEST, Header(Kind.RING, count=len(ring)), [ring])

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
