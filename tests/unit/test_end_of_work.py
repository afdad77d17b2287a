"""Services die while the work ends, and each rank detects it at another time: every live rank receives STOP.

The real manager, cleaning node and servers of each rank, and workers that only leave, over a network that keeps the
order of messages between two ranks and no other order. A dead rank's last messages may be lost.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from farandole.parameter_server.chain_replication import ChainReplication, NoSuccessor
from farandole.parameter_server.cleaning import CleaningNode
from farandole.parameter_server.core.policies import Asynchronous
from farandole.parameter_server.core.update_rules import SGD
from farandole.parameter_server.header import Header, Kind
from farandole.parameter_server.keys import KeyRange
from farandole.parameter_server.manager import Manager
from farandole.parameter_server.message_queue import ANSWER, MessageQueue
from farandole.parameter_server.placement import Placement
from farandole.parameter_server.replicated_server import ReplicatedKVServer
from farandole.parameter_server.service import Role
from farandole.parameter_server.shard import Shard
from farandole.runtime.trace import Trace
from farandole.runtime.world import World

PLACEMENTS = {
    "one rank manages and cleans": Placement(cleaner=0, servers=(1, 2), workers=(3, 4)),
    "each role has a rank": Placement(cleaner=1, servers=(2, 3, 4), workers=(5, 6)),
    "a server cleans": Placement(cleaner=2, servers=(1, 2), workers=(3, 4)),
}


class Network:
    """Messages under way: (from, to) → what has been sent, in order."""

    def __init__(self, ranks: int) -> None:
        self.under_way: defaultdict[tuple[int, int], deque[tuple[int, Header]]] = defaultdict(deque)
        self.living = set(range(ranks))


class Outbox(MessageQueue):
    """One rank's message queue."""

    def __init__(self, network: Network, rank: int, lost: set[int]) -> None:
        self.network, self.rank, self.lost = network, rank, lost
        self.comm: Any = None

    def send(self, to: int, tag: int, header: Header) -> None:
        assert self.lost is not None
        if to not in self.lost:
            self.network.under_way[self.rank, to].append((tag, replace(header, source=self.rank)))

    def forward(self, to: int, tag: int, header: Header, payload: Sequence[Any]) -> None:
        assert not payload
        self.send(to, tag, header)


class Member:
    """One rank: the roles that it has or may have to take over, as a service, or what is left of a worker."""

    def __init__(self, network: Network, rank: int, placement: Placement) -> None:
        self.rank, self.replication = rank, ChainReplication(placement, replicas=2)
        self.post = Outbox(network, rank, self.replication.lost)
        self.has_heard = False
        self.roles: list[Role] = []
        self._missed: set[int] = set()
        self._asked: int | None = None  # for a worker: whether it may leave
        world = cast(World, SimpleNamespace(rank=rank, trace=Trace(rank), finish_computation=lambda start: None))
        if rank in placement.workers:
            self._leave()
            return
        if rank in self.replication.partitions:
            self.roles.append(self._server(world))
        if self.replication.may_clean(rank):
            self.roles.append(CleaningNode(world, self.post, self.replication))
        if rank in self.replication.managers:
            clients, services = dict.fromkeys(placement.workers, 0), {0, placement.cleaner, *placement.servers}
            self.roles.append(
                Manager(rank, self.post, self.replication, clients, services, lambda report: None, float("inf"))
            )

    def _server(self, world: World) -> ReplicatedKVServer:
        def make(reply: Callable[[Header], None], before_moving: Callable[[], None]) -> Shard:
            return Shard(np.zeros(1), [KeyRange(0, 1)], Asynchronous([]), SGD(1.0), None, None, reply, before_moving)

        names = [(partition, 0) for partition in self.replication.stored_at(self.rank)]
        return ReplicatedKVServer(world, self.post, self.replication, dict.fromkeys(names, make))

    def _leave(self) -> None:
        if self._asked != (manager := self.replication.manager):
            self._asked = manager
            self.post.send(manager, 1, Header(Kind.LEAVE, worker=self.rank))

    def take(self, tag: int, header: Header) -> None:
        """A message has arrived; as in `service.serve`, and in `rpc_channel`."""
        if header.kind == Kind.STOP:
            self.has_heard = True
            for role in self.roles:
                role.stop()
            for manager in () if self.roles else self.replication.managers:
                self.post.send(manager, 1, Header(Kind.STOP))
        elif tag != ANSWER:
            [role] = [role for role in self.roles if header.kind in role.kinds]
            role.handle(header)

    def learn(self, dead: set[int]) -> None:
        """Learn of these deaths."""
        self.replication.lost |= dead
        for role in self.roles:
            role.on_failure()
        if not self.roles:
            self._leave()


@pytest.mark.parametrize("placement", PLACEMENTS.values(), ids=PLACEMENTS)
@given(data=st.data())
def test_all_who_live_hear_of_the_end(placement: Placement, data: st.DataObject) -> None:
    services = sorted({0, placement.cleaner, *placement.servers})
    ranks = len(services) + len(placement.workers)
    network = Network(ranks)
    members = [Member(network, rank, placement) for rank in range(ranks)]
    dying = data.draw(st.lists(st.sampled_from(services), max_size=2, unique=True), "who dies")
    dead: set[int] = set()
    try:
        while actions := possible(network, members, dying, dead):
            kind, first, second = data.draw(st.sampled_from(actions))
            if kind == "dies":
                dying.remove(first)
                dead.add(first)
                network.living.discard(first)
                for pair in [pair for pair in network.under_way if pair[0] == first]:
                    if data.draw(st.booleans(), f"what {pair} had under way is lost"):
                        network.under_way[pair].clear()
            elif kind == "learns":
                members[first].learn(set(dead))
            else:
                tag, header = network.under_way[first, second].popleft()
                members[second].take(tag, header)
    except NoSuccessor:
        assume(False)  # both ranks with a part, or a role, have died
    assert [rank for rank in network.living if not members[rank].has_heard] == []


def possible(
    network: Network, members: Sequence[Member], dying: Sequence[int], dead: set[int]
) -> list[tuple[str, int, int]]:
    """Return the possible next events; a rank that has received STOP receives nothing more."""
    listening = [rank for rank in sorted(network.living) if not members[rank].has_heard]
    actions = [("dies", rank, rank) for rank in dying if rank in listening]
    actions += [("learns", rank, rank) for rank in listening if dead - members[rank].replication.lost]
    comes = sorted(pair for pair, messages in network.under_way.items() if messages and pair[1] in listening)
    return actions + [("comes", *pair) for pair in comes]


def test_where_a_worker_alone_has_heard_of_the_end_the_others_hear_it_from_there() -> None:
    placement = PLACEMENTS["one rank manages and cleans"]
    network = Network(5)
    members, dead = [Member(network, rank, placement) for rank in range(5)], set[int]()

    def deliver(but_for: Kind | None = None) -> None:
        while pairs := [
            pair
            for _, *pair in possible(network, members, [], set())
            if network.under_way[tuple(pair)][0][1].kind != but_for  # type: ignore[index]
        ]:
            source, to = pairs[0]
            members[to].take(*network.under_way[source, to].popleft())

    deliver(but_for=Kind.STOP)
    assert {to for (source, to), messages in network.under_way.items() if messages} == set(range(5))
    members[3].take(*network.under_way[0, 3].popleft())
    network.living.discard(0)
    dead.add(0)
    for to in range(5):
        network.under_way[0, to].clear()
    for rank in (1, 2, 4):
        members[rank].learn(dead)
    deliver()
    assert [rank for rank in network.living if not members[rank].has_heard] == []
