"""A server in a chain: a wrapper that forwards requests to the next server, and keeps answers until they arrive.

Both servers of a chain (`chain_replication`) carry out every request; the tail does so when the head has forwarded it.
A shard has no clock, so the head's time of arrival travels with the request, and both policies decide alike. The tail
answers. The head keeps its answers in sessions, and sends them if the tail dies.

    request ──▶ receive ──▶ forward to the tail ──▶ new in its session? ──▶ KVServer.execute ──▶ tail: send the answer
                                                                                               head: keep the answer

Cost: each gradient is sent once more, and each worker's last pulled parameters are copied. Sources: those of
`chain_replication` and `sessions`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from farandole.compression.compressor import Compressor
from farandole.parameter_server.chain_replication import ChainReplication
from farandole.parameter_server.header import Header, Kind
from farandole.parameter_server.kv_server import Array, KVServer, MakeShard, Part
from farandole.parameter_server.message_queue import REQUEST, MessageQueue
from farandole.parameter_server.sessions import Sessions
from farandole.runtime.world import World


class ReplicatedKVServer:
    """One rank's parts: its own partition's, and those of the partitions that it replicates.

    Args:
        make: (partition, application) → what makes the part's shard.
        decoder: of what workers push encoded.
    """

    kinds = KVServer.kinds | {Kind.TICK}

    def __init__(
        self,
        world: World,
        messages: MessageQueue,
        replication: ChainReplication,
        make: Mapping[tuple[int, int], MakeShard],
        decoder: Compressor | None = None,
    ) -> None:
        self.rank, self.messages, self.replication = world.rank, messages, replication
        self.server = KVServer(world, messages, replication, make, decoder=decoder, reply=self._reply)
        self.parts = self.server.parts
        self._sessions = {name: Sessions() for name in self.parts}
        self._cleaned: dict[tuple[int, int], dict[int, Header]] = {name: {} for name in self.parts}  # client → answer
        self._ahead_s = 0.0  # of this rank's clock: the clock of the server that forwards requests to it
        self._tails, self._cleaner = self._current_tails(), replication.cleaner

    def handle(self, header: Header) -> None:
        """Receive a request, from a client or forwarded by the head, and carry it out if it is new."""
        name = header.partition, header.group
        part = self.parts[name]
        payload = self.server.receive(header, part.shard)
        if header.kind == Kind.READ:
            self.server.execute(header, part, payload, time.monotonic())
            return
        now = self._now(header.timestamp)
        self._forward(replace(header, timestamp=now), payload)
        is_request = header.kind in (Kind.PULL, Kind.PUSH, Kind.END)
        if not is_request or self._sessions[name].open(header):  # else the tail has answered it, or will
            self.server.execute(header, part, payload, now)
        if header.kind == Kind.CLEAN:
            self._sessions[name].forget(header.worker)

    def tick(self) -> None:
        """Let time pass at the head; the tail gets a TICK only if something has changed."""
        for part in self.parts.values():
            if self.replication.head(part.partition) == self.rank:
                now, start = self._now(), time.perf_counter()
                if part.shard.tick(now):
                    self._forward(Header(Kind.TICK, partition=part.partition, group=part.group, timestamp=now), [])
                self.server.trace_updates(part, start)

    def on_failure(self) -> None:
        """Where the tail of a chain has died, resend its last answers, which may not have arrived.

        A new cleaning node may have sent its request before the failure was detected here; the answer then went to the
        one that has died, and is sent again.

        Raises:
            NoSuccessor: a partition has no live server any more.
        """
        before, self._tails = self._tails, self._current_tails()
        cleaner, self._cleaner = self._cleaner, self.replication.cleaner
        for name, part in self.parts.items():
            is_tail = self._tails[part.partition] == self.rank
            took_over = is_tail and before[part.partition] != self.rank
            for answer, values in self._sessions[name].answers() if took_over else ():
                self.server.send(part, answer, values)
            for cleaned in self._cleaned[name].values() if took_over or (is_tail and cleaner != self._cleaner) else ():
                self.server.send(part, cleaned)

    def stop(self) -> None:
        pass

    @property
    def late_pushes(self) -> int:
        """Return the number of pushes that came too late to count, over the partitions of which this is the head."""
        heads = [part for part in self.parts.values() if self.replication.head(part.partition) == self.rank]
        return sum(part.shard.late_pushes for part in heads)

    def _current_tails(self) -> dict[int, int]:
        return {partition: self.replication.tail(partition) for partition in self.replication.partitions}

    def _now(self, timestamp: float = 0.0) -> float:
        """Return when a request arrived at the head: `timestamp`, or the present time if this is the head.

        The clocks of several hosts differ. This one follows the furthest, since a policy's time must not run backwards.
        """
        own = time.monotonic() + self._ahead_s
        self._ahead_s += max(0.0, timestamp - own)
        return timestamp or own

    def _forward(self, header: Header, payload: Sequence[Array]) -> None:
        chain = self.replication.chain(header.partition)
        if chain[0] == self.rank and len(chain) > 1:
            self.messages.forward(chain[1], REQUEST, header, payload)

    def _reply(self, part: Part, answer: Header, values: Array | None) -> None:
        """Send an answer if this is the tail; else keep it as it is now, in case the tail dies before it sends it."""
        name = part.partition, part.group
        if answer.kind == Kind.CLEANED:  # to a second request the first answer is sent: there is nothing left to remove
            answer = self._cleaned[name].setdefault(answer.worker, answer)
        if self.replication.tail(part.partition) == self.rank:
            self.server.send(part, answer, values)
        elif answer.kind != Kind.CLEANED:
            self._sessions[name].note(answer, None if values is None else values.copy())
