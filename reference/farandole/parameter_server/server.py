"""A server: its shard of each application's parameters, over MPI.

Workers ask and push; the shard and its policy decide; this module moves the bytes. Parameters are
sent straight from where they live. So before they are moved, what is still being sent must have
left: a worker never reads a half-made update.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from farandole.parameter_server.header import ALL_RANGES, DENSE, ROW_NUMBER, Header, Kind
from farandole.parameter_server.mailbox import ANSWER, PAYLOAD, REQUEST, Mailbox
from farandole.parameter_server.shard import Gradient, Shard
from farandole.parameter_server.window import Window
from farandole.runtime.world import World

# Makes a group's shard, given what the shard calls to answer, and before it moves its values.
MakeShard = Callable[[Callable[[Header], None], Callable[[], None]], Shard]


class Server:
    """One rank's shards: one per application.

    Args:
        make: application number → what makes its shard.
        windows: the applications' shared memory, if parameters and gradients go through that.
    """

    kinds = frozenset({Kind.PULL, Kind.PUSH, Kind.READ, Kind.CLEAN})

    def __init__(
        self, world: World, mailbox: Mailbox, make: Mapping[int, MakeShard], windows: Sequence[Window] = ()
    ) -> None:
        self.world = world
        self.mailbox = mailbox
        self.windows = windows
        self._rows: dict[int, NDArray[np.int32]] = {}  # worker → the rows it asked for
        self.shards = {group: make_shard(self._reply, self._settle) for group, make_shard in make.items()}
        self._group_of = {worker: group for group, shard in self.shards.items() for worker in shard.policy.clocks}

    def handle(self, header: Header) -> None:
        shard = self.shards[header.group]
        now = time.monotonic()
        if header.kind == Kind.PULL:
            if header.count != DENSE:
                self._rows[header.worker] = self._take_rows(header)
            shard.pull(header, now)
        elif header.kind == Kind.PUSH:
            with self.world.trace.span("receive a gradient", "communicate"):
                gradient = self._take_gradient(header, shard)
            before = shard.updates
            start = time.perf_counter()
            shard.push(header, gradient, now)
            if shard.updates > before:
                self.world.finish_computation(start)
                self.world.trace.add("update", "compute", start, time.perf_counter())
        elif header.kind == Kind.READ:
            values = Header(Kind.VALUES, number=header.number, clock=shard.updates)
            if header.count == DENSE:
                self._send(header.source, values, shard.values)
            else:  # no rows: only the version was asked for
                self.mailbox.send(header.source, ANSWER, values)
        elif header.kind == Kind.CLEAN:
            pulls, clocks, pushes = shard.clean(header.worker, now)
            found = Header(Kind.CLEANED, worker=header.worker, pulls=pulls, clocks=clocks, pushes=pushes)
            self.mailbox.send(header.source, REQUEST, found)

    def tick(self) -> None:
        for shard in self.shards.values():
            shard.tick(time.monotonic())

    @property
    def late_pushes(self) -> int:
        """Pushes that came too late to count."""
        return sum(shard.late_pushes for shard in self.shards.values())

    def _reply(self, answer: Header) -> None:
        """Send a shard's answer; a GRANT with the values, or the rows of them that were asked for."""
        if answer.kind != Kind.GRANT:
            self.mailbox.send(answer.worker, ANSWER, answer)
            return
        group = self._group_of[answer.worker]
        values = self.shards[group].values
        if answer.count != DENSE:
            self._send(answer.worker, answer, values[self._rows[answer.worker]])
        elif self.windows:
            self.windows[group].granted(answer.worker)
            self.mailbox.send(answer.worker, ANSWER, answer)
        else:
            self._send(answer.worker, answer, values)

    def _settle(self) -> None:
        """Wait until no parameters are on their way, or being read."""
        self.mailbox.settle()
        for window in self.windows:
            window.settle()

    def _send(self, to: int, header: Header, values: NDArray[Any]) -> None:
        self.mailbox.send(to, ANSWER, header)
        self.mailbox.send_payload(to, values)

    def _take_gradient(self, header: Header, shard: Shard) -> Gradient:
        comm, values = self.mailbox.comm, shard.values
        if header.count != DENSE:
            rows = self._take_rows(header)
            sparse = np.empty((header.count, *values.shape[1:]), values.dtype)
            comm.take(sparse, header.source, PAYLOAD)
            return Gradient([sparse], rows)
        if header.part != ALL_RANGES:
            piece = np.empty_like(values[shard.slices[header.part]])
            comm.take(piece, header.source, PAYLOAD)
            return Gradient([piece])
        if self.windows:
            return Gradient(self.windows[header.group].pieces(header.worker, self.world.rank))
        dense = np.empty_like(values)
        comm.take(dense, header.source, PAYLOAD)
        return Gradient([dense[part] for part in shard.slices])

    def _take_rows(self, header: Header) -> NDArray[np.int32]:
        rows = np.empty(header.count, dtype=ROW_NUMBER)
        self.mailbox.comm.take(rows, header.source, PAYLOAD)
        return rows
