"""Servers without MPI: their answers, forwarded and repeated messages, one by one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from farandole.parameter_server.chain_replication import ChainReplication
from farandole.parameter_server.core.corrections import Correction, DelayCompensated
from farandole.parameter_server.core.policies import BSP, SSP, Asynchronous, History, Policy
from farandole.parameter_server.core.update_rules import SGD
from farandole.parameter_server.header import Header, Kind
from farandole.parameter_server.keys import KeyRange
from farandole.parameter_server.kv_server import KVServer
from farandole.parameter_server.message_queue import REQUEST, MessageQueue
from farandole.parameter_server.placement import Placement
from farandole.parameter_server.replicated_server import ReplicatedKVServer
from farandole.parameter_server.shard import Shard
from farandole.runtime.trace import Trace
from farandole.runtime.world import World

Array = NDArray[Any]
KEYS = 4
PARTITION = 1  # the only one, at server 1; where there are two servers, server 2 replicates it
FIRST, SECOND = 3, 4  # workers


@dataclass
class Message:
    """A header, and copies of what was sent with it."""

    source: int
    to: int
    header: Header
    payload: list[Array] = field(default_factory=list)


class Outbox(MessageQueue):
    """One server's message queue and communicator: collects copies of what the server sends."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.requests: deque[Message] = deque()
        self.answers: deque[Message] = deque()
        self.arriving: deque[Array] = deque()
        self.watched = False
        self.comm: Any = SimpleNamespace(take=self.take, waiting=self.waiting)

    def send(self, to: int, tag: int, header: Header) -> None:
        (self.requests if tag == REQUEST else self.answers).append(Message(self.rank, to, replace(header)))

    def send_payload(self, to: int, buffer: Array, nbytes: int | None = None) -> None:
        assert self.answers[-1].to == to
        self.answers[-1].payload.append(buffer.copy())

    def forward(self, to: int, tag: int, header: Header, payload: Sequence[Array]) -> None:
        self.send(to, tag, header)
        (self.requests if tag == REQUEST else self.answers)[-1].payload.extend(buffer.copy() for buffer in payload)

    def wait_for_sends(self) -> None:
        pass

    @contextmanager
    def waiting(self, call: str, peer: int) -> Iterator[None]:
        self.watched = True
        yield
        self.watched = False

    def take(self, buffer: Array, source: int, tag: int) -> None:
        assert self.watched, "a sender that stops in the middle of a message must not block the server for ever"
        values = self.arriving.popleft()
        assert (buffer.shape, buffer.dtype) == (values.shape, values.dtype)
        buffer[:] = values


class Servers:
    """The chain of one partition: server 1 alone, or with server 2 behind it."""

    def __init__(
        self,
        policy: Callable[[], Policy],
        replicas: int = 1,
        shape: tuple[int, ...] = (KEYS,),
        correction: Callable[[], Correction] | None = None,
    ) -> None:
        self.steps: list[int] = []  # that server 1 has begun
        self.posts: dict[int, Outbox] = {}
        self.servers: dict[int, KVServer | ReplicatedKVServer] = {}
        self.replications: dict[int, ChainReplication] = {}
        self.request_ids = {FIRST: 0, SECOND: 0}
        placement = Placement(cleaner=0, servers=tuple(range(1, replicas + 1)), workers=(FIRST, SECOND))

        def make(reply: Callable[[Header], None], before_moving: Callable[[], None]) -> Shard:
            corrected = correction() if correction else None
            ranges = [KeyRange(0, KEYS)]
            return Shard(np.zeros(shape), ranges, policy(), SGD(1.0), corrected, None, reply, before_moving)

        for rank in placement.servers:
            world = SimpleNamespace(
                rank=rank,
                trace=Trace(rank),
                finish_computation=lambda start: None,
                begin_step=self.steps.append if rank == PARTITION else None,
            )
            post, replication = Outbox(rank), ChainReplication(placement, replicas)
            self.posts[rank], self.replications[rank] = post, replication
            kind = ReplicatedKVServer if replicas > 1 else KVServer
            self.servers[rank] = kind(cast(World, world), post, replication, {(PARTITION, 0): make})

    def ask(
        self,
        worker: int,
        kind: Kind,
        payload: Sequence[Array] = (),
        rank: int = PARTITION,
        request_id: int | None = None,
        **fields: Any,
    ) -> None:
        """Deliver a worker's request, with its next number; forwarded messages arrive at once."""
        if request_id is None:
            request_id = self.request_ids[worker] = self.request_ids[worker] + 1
        header = Header(kind, source=worker, worker=worker, partition=PARTITION, request_id=request_id, **fields)
        self.deliver(Message(worker, rank, header, list(payload)))

    def deliver(self, message: Message) -> None:
        post = self.posts[message.to]
        post.arriving.extend(message.payload)
        self.servers[message.to].handle(replace(message.header, source=message.source))
        assert not post.arriving
        self.pass_on()

    def pass_on(self) -> None:
        for post in list(self.posts.values()):
            while post.requests:
                if (message := post.requests.popleft()).to in self.posts:
                    self.deliver(message)

    def tick(self) -> None:
        for rank in list(self.posts):
            self.servers[rank].tick()
            self.pass_on()

    def die(self, rank: int) -> None:
        """The server is dead; its sent messages are lost."""
        del self.posts[rank], self.servers[rank], self.replications[rank]
        for other, replication in self.replications.items():
            replication.lost.add(rank)
            self.servers[other].on_failure()

    def answered(self, rank: int = PARTITION) -> list[Message]:
        """Return the server's answers since the last call."""
        answers = list(self.posts[rank].answers)
        self.posts[rank].answers.clear()
        return answers

    def shard(self, rank: int = PARTITION) -> Shard:
        return self.servers[rank].parts[PARTITION, 0].shard


def ones(value: float = 1.0) -> list[Array]:
    return [np.full(KEYS, value)]


def kinds(answers: Sequence[Message]) -> list[Kind]:
    return [Kind(answer.header.kind) for answer in answers]


def both(policy: Callable[..., Policy], *arguments: Any) -> Callable[[], Policy]:
    return lambda: policy([FIRST, SECOND], *arguments)


def test_what_the_dead_may_not_have_answered_is_answered_as_it_was_then() -> None:
    servers = Servers(both(Asynchronous), replicas=2)
    servers.ask(FIRST, Kind.PULL)
    servers.ask(SECOND, Kind.PULL)
    servers.ask(SECOND, Kind.PUSH, ones(), clock=0, share=1.0)
    assert servers.answered() == [], "the last in the chain answers"
    servers.die(2)
    again = {(answer.to, answer.header.request_id): answer for answer in servers.answered()}
    assert list(again) == [(FIRST, 1), (SECOND, 1), (SECOND, 2)]
    assert kinds(list(again.values())) == [Kind.GRANT, Kind.GRANT, Kind.APPLIED]
    assert again[FIRST, 1].payload[0].tolist() == [0.0] * KEYS, "what it was granted, not what has come of it since"
    servers.ask(FIRST, Kind.PULL)
    assert [answer.payload[0].tolist() for answer in servers.answered()] == [[-1.0] * KEYS]


def test_a_correction_knows_what_the_worker_has_got() -> None:
    servers = Servers(both(Asynchronous), replicas=2, correction=lambda: DelayCompensated(0.5))
    servers.ask(FIRST, Kind.PULL)
    servers.ask(SECOND, Kind.PULL)
    servers.ask(SECOND, Kind.PUSH, ones(), clock=0, share=1.0)
    servers.die(2)
    [granted] = [answer for answer in servers.answered() if answer.to == FIRST]
    now = servers.shard().values.copy()
    gradient = ones(2.0)[0]
    servers.ask(FIRST, Kind.PUSH, [gradient], clock=0, share=1.0)
    corrected = gradient + 0.5 * gradient * gradient * (now - granted.payload[0])
    assert servers.shard().values.tolist() == (now - corrected).tolist()


def test_rows_are_those_of_their_own_question() -> None:
    """A late gradient is kept for the next step; before it is answered, its worker has asked for other rows twice."""
    servers = Servers(both(History, 1, 0.0), replicas=2, shape=(KEYS, 2))
    several, one = np.array([0, 2, 3], np.int32), np.array([1], np.int32)

    def push(worker: int, clock: int, acked_through: int) -> None:
        gradient = [several, np.ones((3, 2))]
        servers.ask(worker, Kind.PUSH, gradient, clock=clock, share=0.5, count=3, acked_through=acked_through)

    servers.ask(SECOND, Kind.PULL, [several], count=3)
    push(FIRST, 0, acked_through=0)
    push(SECOND, 0, acked_through=1)
    for clock in (1, 2):
        push(FIRST, clock, acked_through=clock)
        servers.tick()
    servers.ask(SECOND, Kind.PULL, [several], count=3, acked_through=2)
    push(SECOND, 1, acked_through=3)
    servers.ask(SECOND, Kind.PULL, [several], count=3, acked_through=3)
    push(SECOND, 2, acked_through=3)
    servers.ask(SECOND, Kind.PULL, [one], count=1, acked_through=3)
    servers.die(2)
    answers = [answer for answer in servers.answered() if answer.to == SECOND]
    assert [(answer.header.request_id, Kind(answer.header.kind)) for answer in answers] == [
        (4, Kind.DROPPED),
        (7, Kind.GRANT),
    ], "who has asked for the next parameters has had the last"
    assert [values.shape for values in answers[-1].payload] == [(answers[-1].header.count, 2)] == [(1, 2)]


def test_what_comes_again_is_carried_out_and_answered_once() -> None:
    servers = Servers(both(Asynchronous), replicas=2)
    servers.ask(FIRST, Kind.PULL)
    servers.ask(FIRST, Kind.PUSH, ones(), clock=0, share=1.0)
    assert kinds(servers.answered(2)) == [Kind.GRANT, Kind.APPLIED]
    servers.die(1)
    servers.ask(FIRST, Kind.PUSH, ones(), rank=2, request_id=2, clock=0, share=1.0)
    assert servers.answered(2) == []
    assert servers.shard(2).values.tolist() == [-1.0] * KEYS
    servers.ask(FIRST, Kind.PULL, rank=2)
    assert kinds(servers.answered(2)) == [Kind.GRANT]


def test_an_update_by_a_worker_that_leaves_begins_a_step() -> None:
    servers = Servers(both(BSP))
    servers.ask(FIRST, Kind.PUSH, ones(), clock=0, share=0.5)
    servers.ask(SECOND, Kind.PUSH, ones(), clock=0, share=0.5)
    servers.ask(FIRST, Kind.PUSH, ones(), clock=1, share=0.5)
    assert servers.steps == [1]
    servers.deliver(Message(0, PARTITION, Header(Kind.CLEAN, worker=SECOND, partition=PARTITION)))
    assert servers.steps == [1, 2], "it was all that the other waited for"


def test_an_update_by_a_pull_begins_a_step() -> None:
    servers = Servers(both(SSP, 1))
    for clock in (0, 1):
        servers.ask(FIRST, Kind.PULL)
        servers.ask(FIRST, Kind.PUSH, ones(), clock=clock, share=0.5)
    assert servers.steps == [1], "a gradient of iteration 1 counts once every worker has begun iteration 0"
    servers.ask(SECOND, Kind.PULL)
    assert servers.steps == [1, 2]


def test_updates_because_time_has_passed_begin_steps_and_are_the_same_on_both_servers() -> None:
    servers = Servers(both(History, 1, 3.0), replicas=2)
    for worker in (FIRST, SECOND):
        servers.ask(worker, Kind.PUSH, ones(), clock=0, share=0.5)
    servers.ask(FIRST, Kind.PUSH, ones(2.0), clock=3, share=0.5)  # another server is ahead of these
    while servers.shard().updates < 4:
        servers.tick()
        assert servers.shard(2).updates == servers.shard().updates
        assert servers.shard(2).values.tolist() == servers.shard().values.tolist()
    assert servers.steps == [1, 2, 3, 4]
