"""Requests made at the moment when all requests end, and the order in which a successor receives them."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from farandole.parameter_server import kv_worker as module
from farandole.parameter_server.chain_replication import ChainReplication
from farandole.parameter_server.header import Header, Kind
from farandole.parameter_server.keys import KeyRange
from farandole.parameter_server.kv_worker import KVWorker
from farandole.parameter_server.layout import Layout
from farandole.parameter_server.message_queue import MessageQueue
from farandole.parameter_server.placement import Placement
from farandole.parameter_server.rpc_channel import Request, RpcChannel

LONG_ENOUGH_S = 0.2  # for the other thread to do what it can at that moment
LATE_S = 20


class Meanwhile(dict[int, Any]):
    """Requests; before one is added another thread may do something, if it does not block."""

    def __init__(self, thread: threading.Thread) -> None:
        super().__init__()
        self.thread = thread

    def __setitem__(self, number: int, request: Any) -> None:
        self.thread.start()
        self.thread.join(LONG_ENOUGH_S)
        super().__setitem__(number, request)


def interrupted(comm: Any, last: Any) -> KVWorker:
    """A client whose communication thread does `last` while a first request is being made."""
    client = KVWorker(comm, {}, np.zeros(2), ChainReplication(Placement.usual(3)))
    channel = client._channel
    channel._requests = Meanwhile(threading.Thread(target=lambda: last(channel), daemon=True))
    return client


def test_a_request_as_the_end_comes_is_answered() -> None:
    client = interrupted(SimpleNamespace(rank=2), lambda channel: channel._receive(Header(Kind.STOP)))
    future = client.progress()
    assert future.result(timeout=LATE_S) is None


def test_a_request_as_the_communication_fails_fails() -> None:
    def fail(*_: object) -> None:
        raise OSError("no network")

    def communicate(channel: RpcChannel) -> None:
        channel._commands.put(fail)
        channel._communicate()

    client = interrupted(SimpleNamespace(rank=2), communicate)
    with pytest.raises(OSError, match="no network"):
        client.progress().result(timeout=LATE_S)
    with pytest.raises(OSError, match="no network"):
        client.progress()


class Outbox(MessageQueue):
    """A message queue that detects a failure while it sends, if `detects` is set."""

    def __init__(self, lost: set[int]) -> None:
        self.lost = lost
        self.sent: list[tuple[Kind, int, int]] = []  # kind, partition, destination
        self.detects: int | None = None

    def send(self, to: int, tag: int, header: Header) -> None:
        assert self.lost is not None
        if to not in self.lost:
            self.sent.append((Kind(header.kind), header.partition, to))
        if self.detects is not None:
            self.lost.add(self.detects)

    def send_payload(self, to: int, buffer: Any, nbytes: int | None = None) -> None:
        pass


def replicated() -> tuple[RpcChannel, Outbox]:
    """Return worker 3's channel to servers 1 and 2, which replicate each other's partition, and its outbox."""
    replication = ChainReplication(Placement(cleaner=0, servers=(1, 2), workers=(3, 4)), replicas=2)
    table = np.zeros(4)
    layouts = {part: Layout([KeyRange(2 * part - 2, 2 * part)], table.shape, table.dtype) for part in (1, 2)}
    comm = cast(Any, SimpleNamespace(rank=3))
    channel = RpcChannel(comm, 0, layouts, table.dtype, replication, replication.lost, None, lambda answers: None)
    post = channel._messages = Outbox(replication.lost)
    return channel, post


def carry_out(channel: RpcChannel) -> None:
    """Run the communication thread's next command."""
    command = channel._commands.get_nowait()
    assert command is not None
    command()


def test_a_later_request_never_reaches_a_successor_first() -> None:
    """A pull that overtook the push before it would be granted before that push has counted."""
    channel, post = replicated()

    def call(header: Header) -> None:
        channel.call(Request(header, dict.fromkeys(channel.layouts), gradient=np.zeros(4)))
        carry_out(channel)

    call(Header(Kind.PUSH))
    assert post.sent == [(Kind.PUSH, 1, 1), (Kind.PUSH, 2, 2)]
    post.sent.clear()
    post.detects = 2
    call(Header(Kind.PULL))
    assert post.sent == [(Kind.PULL, 1, 1)], "the part for the dead server does not go to the successor yet"
    post.sent.clear()
    channel._retry()
    assert post.sent == [(Kind.PUSH, 2, 1), (Kind.PULL, 2, 1)]


def test_a_worker_that_receives_stop_repeats_it_to_every_possible_manager() -> None:
    """The manager may have died before they received it (`test_end_of_work`)."""
    channel, post = replicated()
    channel._receive(Header(Kind.STOP))
    carry_out(channel)
    assert [(kind, to) for kind, _, to in post.sent] == [(Kind.STOP, 0), (Kind.STOP, 1), (Kind.STOP, 2)]


def test_a_client_that_has_left_probes_the_manager(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the time-out applies to the manager's answers, and not to the other workers' work."""
    monkeypatch.setattr(module, "PROBE_EVERY_S", 0.001)
    left, asked = Future[None](), list[str]()

    def answered(_: object, call: str) -> None:
        asked.append(call)
        if len(asked) == 3:
            left.set_result(None)

    client = SimpleNamespace(leave=lambda: left, progress=lambda: None, wait=answered)
    KVWorker.leave_with_the_others(cast(Any, client))
    assert asked == ["the end of the others' work"] * 3
