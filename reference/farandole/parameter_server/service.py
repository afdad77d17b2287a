"""The event loop of a rank that serves: one message after the other, to whichever role it is for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from farandole.parameter_server.header import Header, Kind
from farandole.parameter_server.mailbox import Mailbox


class Role(Protocol):
    """A manager, server or cleaning node.

    Attributes:
        kinds: the messages that are for it.
    """

    kinds: frozenset[Kind]

    def handle(self, header: Header) -> None:
        """A message has come; a payload after it is still to be taken."""

    def tick(self) -> None:
        """Called every few milliseconds while nothing comes."""


def serve(mailbox: Mailbox, roles: Sequence[Role]) -> None:
    """Serve until the manager says STOP. Messages of one kind all go to one role."""
    by_kind: Mapping[int, Role] = {kind: role for role in roles for kind in role.kinds}

    def tick() -> None:
        for role in roles:
            role.tick()

    while (header := mailbox.wait(tick)).kind != Kind.STOP:
        by_kind[header.kind].handle(header)
    with mailbox.comm.waiting("messages to leave", -1):
        mailbox.settle()
