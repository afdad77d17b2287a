"""The event loop of a rank that serves: one message after the other, to whichever role it is for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from farandole.parameter_server.client import Client
from farandole.parameter_server.header import Header, Kind
from farandole.parameter_server.mailbox import Mailbox
from farandole.runtime.failure import PeerLost


class Role(Protocol):
    """A manager, server or cleaning node.

    Attributes:
        kinds: the messages that are for it.
    """

    kinds: frozenset[Kind]

    def handle(self, header: Header) -> None:
        """A message has come; a payload after it is still to be taken."""

    def tick(self) -> None:
        """Called every few milliseconds, less often while messages come one upon the other."""

    def miss(self) -> None:
        """Ranks have died; the mailbox knows which."""

    def stop(self) -> None:
        """The work is over."""


@contextmanager
def beside(client: Client | None, work: Callable[[Client], None] | None) -> Iterator[None]:
    """Run `work` with `client` in a second thread of this rank during the body; with None there is no thread.

    Raises:
        BaseException: the error that ended the thread, after the body; the client has left in any case.
    """
    errors: list[BaseException] = []

    def run(client: Client, work: Callable[[Client], None]) -> None:
        with client:
            try:
                work(client)
            except BaseException as error:
                errors.append(error)
            client.leave_with_the_others()

    if not client or not work:
        yield
        return
    thread = threading.Thread(target=run, args=(client, work), name="beside the service", daemon=True)
    thread.start()
    yield
    thread.join()
    if errors:
        raise errors[0]


def serve(mailbox: Mailbox, roles: Sequence[Role]) -> None:
    """Serve until the manager says STOP. Messages of one kind all go to one role."""
    by_kind: Mapping[int, Role] = {kind: role for role in roles for kind in role.kinds}
    missed: set[int] = set()

    def tick() -> None:
        miss()
        for role in roles:
            role.tick()

    def miss() -> None:
        if dead := (mailbox.lost or set()) - missed:
            missed.update(dead)
            for role in roles:
                role.miss()

    while (header := mailbox.wait(tick)).kind != Kind.STOP:
        try:
            by_kind[header.kind].handle(header)
        except PeerLost as error:  # in the middle of a message
            mailbox.note_loss(error)
        miss()
    for role in roles:
        role.stop()
    with mailbox.comm.waiting("messages to leave", -1):
        mailbox.flush()
