"""A server's part in a change of the ring: hold pulls at the border, send keys, receive others, resume.

The counterpart of `server_manager`, which lists the messages. With a key move its parameter and the update rule's state
for it. A server that joins has not seen the iterations so far. They are replayed to its policy one after the other,
without gradients, until its clocks are those of the other servers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from farandole.parameter_server.core.corrections import Correction
from farandole.parameter_server.core.policies import Policy, Push
from farandole.parameter_server.core.update_rules import UpdateRule, memory
from farandole.parameter_server.header import ROW_NUMBER, Header, Kind
from farandole.parameter_server.keys import Assignment, KeyRange, moves
from farandole.parameter_server.kv_server import Part
from farandole.parameter_server.message_queue import ANSWER, REQUEST, MessageQueue
from farandole.parameter_server.placement import MANAGER
from farandole.parameter_server.server_change import ServerChange
from farandole.runtime.world import World

Array = NDArray[Any]
Pieces = dict[KeyRange, Array]  # of one array like the table


class Resharder:
    """One server's part in the changes; it serves a single application.

    Args:
        part: this server's keys.
        ring: the servers that have keys at the start.
        assign: returns which server of a ring has which of the initial ranges.
        rule, correction: make the update rule and the correction for a part with other keys.
    """

    kinds = frozenset({Kind.RING, Kind.MOVE})

    def __init__(
        self,
        world: World,
        messages: MessageQueue,
        part: Part,
        ring: Sequence[int],
        changes: Sequence[ServerChange],
        assign: Callable[[Sequence[int]], Assignment],
        rule: Callable[[Array], UpdateRule],
        correction: Callable[[], Correction | None],
    ) -> None:
        self.world, self.messages = world, messages
        self.part = part
        self.assign, self._rule, self._correction = assign, rule, correction
        self._before = assign(ring)
        self._after: Assignment | None = None  # the next assignment, until all its keys have arrived
        self._borders = [change.step for change in changes]
        self._arrived: dict[int, tuple[int, list[Array]]] = {}  # server → its updates, and the arrays it has sent
        self._is_ready = False
        self._sent = np.zeros(2, np.int64)  # keys, bytes
        self._hold()

    def handle(self, header: Header) -> None:
        if header.kind == Kind.RING:
            ring = np.empty(header.count, ROW_NUMBER)
            self.messages.receive([ring], header.source)
            with self.world.trace.span("move keys", "communicate"):
                self._change_to(ring)
        else:
            like = self.part.shard.values
            arrays = [np.empty((header.count, *like.shape[1:]), like.dtype) for _ in range(1 + len(self._remembered))]
            self.messages.receive(arrays, header.source)
            self._arrived[header.source] = header.clock, arrays
        self._go_on_if_all_is_there()

    def tick(self) -> None:
        """Report to the manager, once no gradient is on its way here any more."""
        if self._borders and not self._is_ready and self.world.rank in self._before and self.part.shard.ledger.all_wait:
            self._is_ready = True
            self.messages.send(MANAGER, REQUEST, Header(Kind.READY))

    def on_failure(self) -> None:
        pass

    def stop(self) -> None:
        pass

    @property
    def _remembered(self) -> dict[str, Array]:
        return memory(self.part.shard.rule)

    def _hold(self) -> None:
        """Let no worker start the iteration at the border; on a server that stands by, none at all."""
        border = self._borders[0] if self._borders else None
        self.part.shard.ledger.hold_from = border if self.world.rank in self._before else 0

    def _change_to(self, ring: NDArray[np.int32]) -> None:
        """Redirect the waiting workers, and send the keys that move, to the servers of the new ring."""
        shard, own = self.part.shard, self.world.rank
        self._after = self.assign([int(server) for server in ring])
        if own in self._before:
            for pull in shard.ledger.give_up_pulls():
                self.part.rows.pop(pull.worker, None)
                moved = Header(
                    Kind.MOVED, worker=pull.worker, partition=own, request_id=pull.request_id, count=len(ring)
                )
                self.messages.forward(pull.worker, ANSWER, moved, [ring])
        before = self.world.comm.bytes_sent
        arrays = [self._by_range(array) for array in (shard.values, *self._remembered.values())]
        for (source, to), ranges in moves(self._before, self._after).items():
            if source == own:
                payload = [np.concatenate([pieces[part] for part in ranges]) for pieces in arrays]
                header = Header(Kind.MOVE, clock=shard.updates, count=len(payload[0]))
                self.messages.forward(to, REQUEST, header, payload)
                self._sent[0] += header.count
        self._sent[1] += self.world.comm.bytes_sent - before

    def _go_on_if_all_is_there(self) -> None:
        own = self.world.rank
        if self._after is None:
            return
        coming = {source: ranges for (source, to), ranges in moves(self._before, self._after).items() if to == own}
        if coming.keys() - self._arrived.keys():
            return
        shard, border = self.part.shard, self._borders.pop(0)
        columns = [self._by_range(array) for array in (shard.values, *self._remembered.values())]
        updates = shard.updates
        for source, ranges in coming.items():
            updates, arrays = self._arrived.pop(source)
            for pieces, array in zip(columns, arrays, strict=True):
                pieces.update(_cut(array, ranges))
        ranges = self._after.get(own, [])
        nothing = shard.values[:0]
        values, *remembered = (np.concatenate([nothing, *(pieces[part] for part in ranges)]) for pieces in columns)
        rule = self._rule(values)
        for _ in range(updates):
            rule.begin()
        for array, before in zip(memory(rule).values(), remembered, strict=True):
            array[:] = before
        if own not in self._before:
            catch_up(shard.policy, border)
        shard.replace(values, ranges, rule, self._correction(), updates)
        self.part.traced = updates
        self._before, self._after, self._is_ready = self._after, None, False
        self._hold()
        shard.answer_pulls(time.monotonic())
        self.messages.forward(MANAGER, REQUEST, Header(Kind.COMPLETE), [self._sent])
        self._sent = np.zeros(2, np.int64)

    def _by_range(self, array: Array) -> Pieces:
        return _cut(array, self.part.shard.ranges)


def _cut(array: Array, ranges: Sequence[KeyRange]) -> Pieces:
    """Split `array`, in which `ranges` lie one after the other."""
    stops = np.cumsum([len(part) for part in ranges], dtype=int)
    return dict(zip(ranges, np.split(array, stops[:-1]), strict=True)) if ranges else {}


def catch_up(policy: Policy, clock: int) -> None:
    """Replay to a policy all iterations before `clock`, which it has not seen; no update is applied."""
    now = time.monotonic()
    for iteration in range(next(iter(policy.clocks.values()), clock), clock):
        timestamp = now + iteration - clock  # of start and push: the durations are not known here
        for worker in list(policy.clocks):
            policy.started(worker, timestamp)
        for worker in list(policy.clocks):
            policy.push(Push(worker, iteration, 1.0), timestamp)
