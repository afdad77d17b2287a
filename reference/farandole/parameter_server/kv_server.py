"""A server of the key-value store: its partition of each application's parameters, over MPI.

Workers pull and push. The shard and its policy decide what happens, and this module moves the bytes. Parameters are
sent straight from the array that the update rule moves. Before an update the server waits until all pending sends are
complete, so a worker never reads half an update. As `KVServer` in ps-lite (Li et al., OSDI 2014); `replicated_server`
makes two of these hold the same parameters.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from farandole.compression.compressor import Compressor
from farandole.parameter_server.chain_replication import ChainReplication
from farandole.parameter_server.header import ALL_RANGES, DENSE, ENCODED, ROW_NUMBER, Header, Kind
from farandole.parameter_server.message_queue import ANSWER, REQUEST, MessageQueue
from farandole.parameter_server.shard import Gradient, Shard
from farandole.parameter_server.window import Window
from farandole.runtime.world import World

Array = NDArray[Any]
# Makes a part's shard from the function that sends its answers and the one that it calls before it moves its values.
MakeShard = Callable[[Callable[[Header], None], Callable[[], None]], Shard]


@dataclass
class Part:
    """One application's parameters in one partition.

    Attributes:
        rows: worker → the rows that it has requested, if not all, until they are granted.
        traced: how many of the shard's updates are in the trace.
    """

    partition: int
    group: int
    shard: Shard
    rows: dict[int, Array] = field(default_factory=dict)
    traced: int = 0


Reply = Callable[[Part, Header, Array | None], None]


class KVServer:
    """One rank's parts.

    Args:
        make: (partition, application) → what makes the part's shard.
        windows: the applications' shared memory, if parameters and gradients go through that.
        decoder: of what workers push encoded.
        reply: is given each answer and its values, in place of `send`; None: answers are sent.
    """

    kinds = frozenset({Kind.PULL, Kind.PUSH, Kind.READ, Kind.END, Kind.CLEAN})

    def __init__(
        self,
        world: World,
        messages: MessageQueue,
        replication: ChainReplication,
        make: Mapping[tuple[int, int], MakeShard],
        windows: Sequence[Window] = (),
        decoder: Compressor | None = None,
        reply: Reply | None = None,
    ) -> None:
        self.world, self.messages, self.replication = world, messages, replication
        self.windows, self.decoder = windows, decoder
        self._reply = reply or self.send
        self.parts = {
            name: Part(*name, make_shard(partial(self._answer, name), self._wait_for_readers))
            for name, make_shard in make.items()
        }

    def handle(self, header: Header) -> None:
        """Receive the rest of a request, and execute it."""
        part = self.parts[header.partition, header.group]
        self.execute(header, part, self.receive(header, part.shard), time.monotonic())

    def tick(self) -> None:
        for part in self.parts.values():
            start = time.perf_counter()
            part.shard.tick(time.monotonic())
            self.trace_updates(part, start)

    def on_failure(self) -> None:
        """
        Raises:
            NoSuccessor: a partition has no live server any more.
        """
        for partition in self.replication.partitions:
            self.replication.head(partition)

    def stop(self) -> None:
        pass

    @property
    def late_pushes(self) -> int:
        """Return the number of pushes that came too late to count."""
        return sum(part.shard.late_pushes for part in self.parts.values())

    def receive(self, header: Header, shard: Shard) -> list[Array]:
        """Receive the payload of a header: row numbers, a gradient, both, or nothing."""
        if header.kind not in (Kind.PULL, Kind.PUSH):
            return []
        payload: list[Array] = []
        values = shard.values
        if header.count == ENCODED:
            assert self.decoder is not None
            payload.append(np.empty(self.decoder.nbytes(len(values)), np.uint8))
        elif header.count != DENSE:
            payload.append(np.empty(header.count, dtype=ROW_NUMBER))
        if header.kind == Kind.PUSH and header.count != ENCODED:
            if header.count != DENSE:
                payload.append(np.empty((header.count, *values.shape[1:]), values.dtype))
            elif header.part != ALL_RANGES:
                payload.append(np.empty_like(values[shard.slices[header.part]]))
            elif not self.windows:
                payload.append(np.empty_like(values))
        span = self.world.trace.span("receive a gradient", "communicate")
        with span if header.kind == Kind.PUSH else nullcontext():
            self.messages.receive(payload, header.source)
        return payload

    def execute(self, header: Header, part: Part, payload: Sequence[Array], now: float) -> None:
        """Carry out a request; the answers, also to other workers, go to `reply`.

        Args:
            now: seconds on the clock of this partition's policy.
        """
        start = time.perf_counter()
        if header.kind == Kind.READ:
            self._read(header, part)
        elif header.kind == Kind.PULL:
            if payload:
                part.rows[header.worker] = payload[0]
            part.shard.pull(header, now)
        elif header.kind == Kind.PUSH:
            part.shard.push(header, self._gradient(header, part.shard, payload), now)
        elif header.kind == Kind.END:
            part.shard.end(header, now)
        elif header.kind == Kind.CLEAN:
            self._clean(header, part, now)
        else:
            part.shard.tick(now)
        self.trace_updates(part, start)

    def trace_updates(self, part: Part, start: float) -> None:
        """Trace the updates since `start`, which last longer on a slow rank; each one is a step of this rank."""
        if part.shard.updates == part.traced:
            return
        self.world.finish_computation(start)
        self.world.trace.add("update", "compute", start, time.perf_counter())
        steps = range(part.traced + 1, part.shard.updates + 1)
        part.traced = part.shard.updates
        for step in steps if part.partition == self.world.rank else ():
            self.world.begin_step(step)

    def send(self, part: Part, answer: Header, values: Array | None = None) -> None:
        """Send an answer and its values; the shard's own values must have been sent before they are moved."""
        to, tag = answer.worker, ANSWER
        if answer.kind == Kind.CLEANED:
            to, tag = self.replication.cleaner, REQUEST
        if values is None:
            self.messages.send(to, tag, answer)
        elif values is part.shard.values:
            self.messages.send(to, tag, answer)
            self.messages.send_payload(to, values)
        else:
            self.messages.forward(to, tag, answer, [values])

    def _answer(self, name: tuple[int, int], answer: Header) -> None:
        """The shard answers a request."""
        part = self.parts[name]
        answer.partition = part.partition
        self._reply(part, answer, self._granted(part, answer) if answer.kind == Kind.GRANT else None)

    def _granted(self, part: Part, grant: Header) -> Array | None:
        """Return the parameters that belong to a GRANT; None: the worker reads them in the window."""
        if grant.count != DENSE:
            rows: Array = part.shard.values[part.rows.pop(grant.worker)]
            return rows
        if self.windows:
            self.windows[part.group].granted(grant.worker)
            return None
        return part.shard.values

    def _read(self, header: Header, part: Part) -> None:
        """Answer at once, without the policy; a count of 0 requests the version alone."""
        answer = Header(
            Kind.VALUES, worker=header.source, partition=header.partition, request_id=header.request_id,
            clock=part.shard.updates, count=header.count,
        )  # fmt: skip
        self.send(part, answer, part.shard.values if header.count == DENSE else None)

    def _clean(self, header: Header, part: Part, now: float) -> None:
        pulls, clocks, pushes = part.shard.clean(header.worker, now)
        part.rows.pop(header.worker, None)
        cleaned = Header(
            Kind.CLEANED, worker=header.worker, partition=part.partition, pulls=pulls, clocks=clocks, pushes=pushes
        )
        self._reply(part, cleaned, None)

    def _wait_for_readers(self) -> None:
        """Block until no parameters are being sent, or read in the window."""
        self.messages.wait_for_sends()
        for window in self.windows:
            window.wait_for_readers()

    def _gradient(self, header: Header, shard: Shard, payload: Sequence[Array]) -> Gradient:
        if header.count == ENCODED:
            decoded = self._decoded(payload[0], len(shard.values))
            return Gradient([decoded[part] for part in shard.slices])
        if header.count != DENSE:
            rows, sparse = payload
            return Gradient([sparse], rows)
        if header.part != ALL_RANGES:
            return Gradient(list(payload))
        if not payload:
            return Gradient(self.windows[header.group].pieces(header.worker, self.world.rank))
        return Gradient([payload[0][part] for part in shard.slices])

    def _decoded(self, payload: Array, length: int) -> Array:
        """Decode a gradient; in the trace this is a part of the update, if there is one."""
        assert self.decoder is not None
        start = time.perf_counter()
        gradient = self.decoder.decode(payload, length)
        self.world.trace.add("decode", "compute", start, time.perf_counter(), depth=1)
        return gradient
