"""A tree between clients and servers: an aggregator sums the gradients of its workers.

Document 004: with n workers one server receives n gradients and sends the parameters n times per step. A layer of
aggregators, each for f workers, reduces both to n / f, at the price of one more hop. To the servers an aggregator is a
worker whose share is the sum of its workers' shares. To its workers it is a server with all keys. The policy applies
to the aggregators; the workers of one aggregator run in step.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
from numpy.typing import NDArray

from farandole.parameter_server.header import Header, Kind
from farandole.parameter_server.kv_worker import KVWorker, Start
from farandole.parameter_server.message_queue import ANSWER, MessageQueue
from farandole.runtime.world import World


class Aggregator:
    """One aggregator's work, from the first pull of its members to the last.

    Args:
        members: its workers.
        table: where the parameters are kept for them; a gradient has its shape and type.
    """

    def __init__(
        self, world: World, messages: MessageQueue, upstream: KVWorker, members: Sequence[int], table: NDArray[Any]
    ) -> None:
        self.world, self.messages, self.upstream, self.members, self.table = world, messages, upstream, members, table
        self._gradients = {member: np.empty_like(table) for member in members}
        self._arrived: dict[int, dict[int, Header]] = {Kind.PULL: {}, Kind.PUSH: {}}  # kind → member → message
        self._pushed: list[
            tuple[Future[int | None], dict[int, Header]]
        ] = []  # not answered yet, and the members' pushes in it

    def run(self) -> None:
        """Iterations, until the servers have no more work."""
        while True:
            pulls = self._from_each_member(Kind.PULL)
            self.messages.wait_for_sends()  # parameters that are being sent to a member must not change
            start: Start | None = self.upstream.wait(self.upstream.pull(self.table), "pull")
            for member, pull in pulls.items():
                self._answer(member, pull, start)
            if start is None:
                break
            pushes = self._from_each_member(Kind.PUSH)
            with self.world.compute("sum of gradients"):
                share = sum(push.share for push in pushes.values())
                total = sum(push.share * self._gradients[member] for member, push in sorted(pushes.items()))
                mean = np.asarray(total / share if share else total, self.table.dtype)
            self._pushed.append((self.upstream.push(mean, start.clock, share), pushes))
        for future, _ in self._pushed:
            self.upstream.wait(future, "the answer to a push")
        self._acknowledge()
        self.messages.flush()

    def _from_each_member(self, kind: Kind) -> dict[int, Header]:
        """Return one message of this kind from each member; a fast member's next pull may arrive in between."""
        while len(self._arrived[kind]) < len(self.members):
            header = self.messages.wait(self._while_waiting)
            if header.kind == Kind.PUSH:
                self.messages.receive([self._gradients[header.source]], header.source)
            self._arrived[header.kind][header.source] = header
        arrived, self._arrived[kind] = self._arrived[kind], {}
        return arrived

    def _answer(self, member: int, pull: Header, start: Start | None) -> None:
        if start is None:
            self.messages.send(member, ANSWER, self._reply(Kind.FINISHED, pull))
            return
        grant = self._reply(Kind.GRANT, pull)
        grant.clock, grant.lead, grant.seconds = start.clock, start.lead, start.held_s
        self.messages.send(member, ANSWER, grant)
        self.messages.send_payload(member, self.table)

    def _while_waiting(self) -> None:
        self.upstream.heartbeat()
        self._acknowledge()

    def _acknowledge(self) -> None:
        """Forward the servers' answers to the sums to the members."""
        for future, pushes in [pair for pair in self._pushed if pair[0].done()]:
            self._pushed.remove((future, pushes))
            staleness = future.result()
            kind = Kind.DROPPED if staleness is None else Kind.APPLIED
            for member, push in pushes.items():
                answer = self._reply(kind, push)
                answer.staleness = staleness or 0
                self.messages.send(member, ANSWER, answer)

    def _reply(self, kind: Kind, request: Header) -> Header:
        return Header(kind, worker=request.worker, partition=self.world.rank, request_id=request.request_id)
