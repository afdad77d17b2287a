"""A tree between clients and servers: an aggregator sums the gradients of its workers.

Document 004: with n workers at one server the server takes in n gradients and gives out the
parameters n times per step. A layer of aggregators, each for f workers, leaves it n / f of each; the
aggregator does the rest, at the price of one more hop. To the servers an aggregator is a worker
whose share is the sum of its workers' shares; to its workers it is a server with all keys. The
policy holds between aggregators; within each group the workers go in step.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
from numpy.typing import NDArray

from farandole.parameter_server.client import Client, Start
from farandole.parameter_server.header import Header, Kind
from farandole.parameter_server.mailbox import ANSWER, Mailbox
from farandole.runtime.world import World


class Aggregator:
    """One aggregator's work, from the first pull of its members to the last.

    Args:
        members: its workers.
        table: where the parameters are kept for them; a gradient has its shape and type.
    """

    def __init__(
        self, world: World, mailbox: Mailbox, upstream: Client, members: Sequence[int], table: NDArray[Any]
    ) -> None:
        self.world, self.mailbox, self.upstream, self.members, self.table = world, mailbox, upstream, members, table
        self._gradients = {member: np.empty_like(table) for member in members}
        self._arrived: dict[int, dict[int, Header]] = {Kind.PULL: {}, Kind.PUSH: {}}  # kind → member → message
        self._pushed: list[tuple[Future[int | None], dict[int, Header]]] = []  # not answered yet, and for whom

    def run(self) -> None:
        """Iterations, until the servers have no more work."""
        while True:
            pulls = self._from_everybody(Kind.PULL)
            self.mailbox.settle()  # what is still being sent to a member must not change
            start: Start | None = self.upstream.wait(self.upstream.start(self.table), "pull")
            for member, pull in pulls.items():
                self._answer(member, pull, start)
            if start is None:
                break
            pushes = self._from_everybody(Kind.PUSH)
            with self.world.compute("sum of gradients"):
                share = sum(push.share for push in pushes.values())
                total = sum(push.share * self._gradients[member] for member, push in sorted(pushes.items()))
                mean = np.asarray(total / share if share else total, self.table.dtype)
            self._pushed.append((self.upstream.push(mean, start.clock, share), pushes))
        for future, _ in self._pushed:
            self.upstream.wait(future, "the answer to a push")
        self._acknowledge()
        self.mailbox.flush()

    def _from_everybody(self, kind: Kind) -> dict[int, Header]:
        """One message of this kind from each member; a fast member's next pull may come in between."""
        while len(self._arrived[kind]) < len(self.members):
            header = self.mailbox.wait(self._while_waiting)
            if header.kind == Kind.PUSH:
                self.mailbox.take([self._gradients[header.source]], header.source)
            self._arrived[header.kind][header.source] = header
        arrived, self._arrived[kind] = self._arrived[kind], {}
        return arrived

    def _answer(self, member: int, pull: Header, start: Start | None) -> None:
        if start is None:
            self.mailbox.send(member, ANSWER, Header(Kind.FINISHED, home=self.world.rank, number=pull.number))
            return
        answer = Header(
            Kind.GRANT, home=self.world.rank, number=pull.number, clock=start.clock, lead=start.lead,
            seconds=start.held_s,
        )  # fmt: skip
        self.mailbox.send(member, ANSWER, answer)
        self.mailbox.send_payload(member, self.table)

    def _while_waiting(self) -> None:
        self.upstream.alive()
        self._acknowledge()

    def _acknowledge(self) -> None:
        """Tell members of their gradients what the servers have told us of the sums."""
        for future, pushes in [pair for pair in self._pushed if pair[0].done()]:
            self._pushed.remove((future, pushes))
            staleness = future.result()
            kind = Kind.DROPPED if staleness is None else Kind.APPLIED
            for member, push in pushes.items():
                self.mailbox.send(
                    member, ANSWER, Header(kind, home=self.world.rank, number=push.number, staleness=staleness or 0)
                )
