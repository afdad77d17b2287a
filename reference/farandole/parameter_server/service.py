"""The event loop of a service rank: it hands each message to the role that handles its kind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from farandole.parameter_server.header import Header, Kind
from farandole.parameter_server.kv_worker import KVWorker
from farandole.parameter_server.message_queue import MessageQueue
from farandole.runtime.failure import PeerLost


class Role(Protocol):
    """A manager, server or cleaning node.

    Attributes:
        kinds: the messages that it handles.
    """

    kinds: frozenset[Kind]

    def handle(self, header: Header) -> None:
        """A header has arrived; its payload, if any, is still to be received."""

    def tick(self) -> None:
        """Called every few milliseconds, less often while messages keep arriving."""

    def on_failure(self) -> None:
        """Ranks have died; they are in the message queue's `lost`."""

    def stop(self) -> None:
        """The work is over."""


@contextmanager
def beside(kv: KVWorker | None, work: Callable[[KVWorker], None] | None) -> Iterator[None]:
    """Run `work` with `kv` in a second thread of this rank during the body; with None there is no thread.

    Raises:
        BaseException: the error that ended the thread, after the body; the client has left in any case.
    """
    errors: list[BaseException] = []

    def run(kv: KVWorker, work: Callable[[KVWorker], None]) -> None:
        with kv:
            try:
                work(kv)
            except BaseException as error:
                errors.append(error)
            kv.leave_with_the_others()

    if not kv or not work:
        yield
        return
    thread = threading.Thread(target=run, args=(kv, work), name="beside the service", daemon=True)
    thread.start()
    yield
    thread.join()
    if errors:
        raise errors[0]


def serve(messages: MessageQueue, roles: Sequence[Role]) -> None:
    """Serve until STOP arrives. All messages of one kind go to one role."""
    by_kind: Mapping[int, Role] = {kind: role for role in roles for kind in role.kinds}
    handled: set[int] = set()

    def tick() -> None:
        handle_failures()
        for role in roles:
            role.tick()

    def handle_failures() -> None:
        if dead := (messages.lost or set()) - handled:
            handled.update(dead)
            for role in roles:
                role.on_failure()

    while (header := messages.wait(tick)).kind != Kind.STOP:
        try:
            by_kind[header.kind].handle(header)
        except PeerLost as error:  # in the middle of a message
            messages.on_failure(error)
        handle_failures()
    for role in roles:
        role.stop()
    with messages.comm.waiting("messages to leave", -1):
        messages.flush()
