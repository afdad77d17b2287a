"""What becomes of requests just as all of them end, and in which order they are put to a successor."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from farandole.parameter_server import client as module
from farandole.parameter_server.client import Client
from farandole.parameter_server.conversation import Conversation, Request
from farandole.parameter_server.header import Header, Kind
from farandole.parameter_server.keys import KeyRange
from farandole.parameter_server.layout import Layout
from farandole.parameter_server.mailbox import Mailbox
from farandole.parameter_server.placement import Placement
from farandole.parameter_server.succession import Succession

LONG_ENOUGH_S = 0.2  # for the other thread to do what it can at that moment
LATE_S = 20


class Meanwhile(dict[int, Any]):
    """Requests; when one is added another thread is let do something first, if it may."""

    def __init__(self, thread: threading.Thread) -> None:
        super().__init__()
        self.thread = thread

    def __setitem__(self, number: int, request: Any) -> None:
        self.thread.start()
        self.thread.join(LONG_ENOUGH_S)
        super().__setitem__(number, request)


def interrupted(comm: Any, last: Any) -> Client:
    """A client whose communication thread does `last` while a first request is being made."""
    client = Client(comm, {}, np.zeros(2), Succession(Placement.usual(3)))
    conversation = client._conversation
    conversation._requests = Meanwhile(threading.Thread(target=lambda: last(conversation), daemon=True))
    return client


def test_a_request_as_the_end_comes_is_answered() -> None:
    client = interrupted(SimpleNamespace(rank=2), lambda conversation: conversation._take(Header(Kind.STOP)))
    future = client.progress()
    assert future.result(timeout=LATE_S) is None


def test_a_request_as_the_communication_fails_fails() -> None:
    def fail(*_: object) -> None:
        raise OSError("no network")

    def communicate(conversation: Conversation) -> None:
        conversation._commands.put(fail)
        conversation._communicate()

    client = interrupted(SimpleNamespace(rank=2), communicate)
    with pytest.raises(OSError, match="no network"):
        client.progress().result(timeout=LATE_S)
    with pytest.raises(OSError, match="no network"):
        client.progress()


class Post(Mailbox):
    """A mailbox that learns of a death while it sends, if it is told to."""

    def __init__(self, lost: set[int]) -> None:
        self.lost = lost
        self.sent: list[tuple[Kind, int, int]] = []  # what, of whose part, to whom
        self.learns: int | None = None

    def send(self, to: int, tag: int, header: Header) -> None:
        assert self.lost is not None
        if to not in self.lost:
            self.sent.append((Kind(header.kind), header.home, to))
        if self.learns is not None:
            self.lost.add(self.learns)

    def send_payload(self, to: int, buffer: Any, nbytes: int | None = None) -> None:
        pass


def replicated() -> tuple[Conversation, Post]:
    """Worker 3's conversation with servers 1 and 2, each of which has the other's part, too, and what it has sent."""
    succession = Succession(Placement(cleaner=0, servers=(1, 2), workers=(3, 4)), replicas=2)
    table = np.zeros(4)
    layouts = {home: Layout([KeyRange(2 * home - 2, 2 * home)], table.shape, table.dtype) for home in (1, 2)}
    comm = cast(Any, SimpleNamespace(rank=3))
    conversation = Conversation(comm, 0, layouts, table.dtype, succession, succession.lost, None, lambda answers: None)
    post = conversation._mailbox = Post(succession.lost)
    return conversation, post


def carry_out(conversation: Conversation) -> None:
    """What the communication thread does next."""
    command = conversation._commands.get_nowait()
    assert command is not None
    command()


def test_what_is_asked_later_never_comes_to_a_successor_first() -> None:
    """A pull that overtook the push before it would be granted before that push has counted."""
    conversation, post = replicated()

    def ask(header: Header) -> None:
        conversation.ask(Request(header, dict.fromkeys(conversation.layouts), gradient=np.zeros(4)))
        carry_out(conversation)

    ask(Header(Kind.PUSH))
    assert post.sent == [(Kind.PUSH, 1, 1), (Kind.PUSH, 2, 2)]
    post.sent.clear()
    post.learns = 2
    ask(Header(Kind.PULL))
    assert post.sent == [(Kind.PULL, 1, 1)], "its part for the dead is not put to the successor yet"
    post.sent.clear()
    conversation._ask_again()
    assert post.sent == [(Kind.PUSH, 2, 1), (Kind.PULL, 2, 1)]


def test_who_hears_of_the_end_tells_those_who_could_have_said_so() -> None:
    """The one that has may have died before they heard it (`test_end_of_work`)."""
    conversation, post = replicated()
    conversation._take(Header(Kind.STOP))
    carry_out(conversation)
    assert [(kind, to) for kind, _, to in post.sent] == [(Kind.STOP, 0), (Kind.STOP, 1), (Kind.STOP, 2)]


def test_whoever_has_left_asks_now_and_then_whether_the_manager_is_still_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the time-out is for its answers, not for the others' work."""
    monkeypatch.setattr(module, "ASKS_EVERY_S", 0.001)
    left, asked = Future[None](), list[str]()

    def answered(_: object, call: str) -> None:
        asked.append(call)
        if len(asked) == 3:
            left.set_result(None)

    client = SimpleNamespace(leave=lambda: left, progress=lambda: None, wait=answered)
    Client.leave_with_the_others(cast(Any, client))
    assert asked == ["the end of the others' work"] * 3
