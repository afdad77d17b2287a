"""In which order a worker asks again, once it has learned of a death, and when it learns of it."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from farandole.parameter_server.conversation import Conversation, Request
from farandole.parameter_server.header import Header, Kind
from farandole.parameter_server.keys import KeyRange
from farandole.parameter_server.layout import Layout
from farandole.parameter_server.mailbox import Mailbox
from farandole.parameter_server.placement import Placement
from farandole.parameter_server.succession import Succession

PLACEMENT = Placement(cleaner=0, servers=(1, 2), workers=(3, 4))
Sent = tuple[Kind, int, int]  # what, of whose part, to whom


class Post(Mailbox):
    """A mailbox that learns of a death while it sends, if it is told to."""

    def __init__(self, lost: set[int]) -> None:
        self.lost = lost
        self.sent: list[Sent] = []
        self.learns: int | None = None

    def send(self, to: int, tag: int, header: Header) -> None:
        assert self.lost is not None
        if to not in self.lost:
            self.sent.append((Kind(header.kind), header.home, to))
        if self.learns is not None:
            self.lost.add(self.learns)

    def send_payload(self, to: int, buffer: Any, nbytes: int | None = None) -> None:
        pass


def test_what_is_asked_later_never_comes_to_a_successor_first() -> None:
    """A pull that overtook the push before it would be granted before that push has counted."""
    succession = Succession(PLACEMENT, replicas=2)
    table = np.zeros(4)
    layouts = {home: Layout([KeyRange(2 * home - 2, 2 * home)], table.shape, table.dtype) for home in (1, 2)}
    comm = cast(Any, type("Comm", (), {"rank": 3}))
    conversation = Conversation(comm, 0, layouts, table.dtype, succession, succession.lost, None, lambda answers: None)
    post = conversation._mailbox = Post(succession.lost)

    def ask(header: Header) -> None:
        conversation.ask(Request(header, dict.fromkeys(layouts), gradient=table))
        command = conversation._commands.get()
        assert command is not None
        command()

    ask(Header(Kind.PUSH))
    assert post.sent == [(Kind.PUSH, 1, 1), (Kind.PUSH, 2, 2)]
    post.sent.clear()
    post.learns = 2
    ask(Header(Kind.PULL))
    assert post.sent == [(Kind.PULL, 1, 1)], "its part for the dead is not put to the successor yet"
    post.sent.clear()
    conversation._ask_again()
    assert post.sent == [(Kind.PUSH, 2, 1), (Kind.PULL, 2, 1)]
