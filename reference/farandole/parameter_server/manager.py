"""The manager: hears how the workers get on, notices who has gone, and ends the training.

Document 001's master and document 004's resource manager. At the start it has shared out the keys
and the work (`setup`); during training every worker reports each iteration to it. A worker that has
finished says so; one that has been silent for too long is taken for dead. The cleaning node is told
of both. When all are gone and all is tidy, the manager tells everybody to stop.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from farandole.parameter_server.header import Header, Kind
from farandole.parameter_server.mailbox import ANSWER, REQUEST, Mailbox


class Manager:
    """One rank's part in it.

    Args:
        clients: client's rank → its application.
        services: the ranks of servers, cleaning node and manager.
        reported: called with each worker's report.
        silence_s: a client that says nothing for so long is taken for dead.
        readers: the clients that do not train.
    """

    kinds = frozenset({Kind.REPORT, Kind.LEAVE, Kind.TIDY, Kind.PROGRESS, Kind.ALIVE})

    def __init__(
        self,
        mailbox: Mailbox,
        clients: Mapping[int, int],
        services: Iterable[int],
        cleaner: int,
        reported: Callable[[Header], None],
        silence_s: float,
        readers: Iterable[int] = (),
    ) -> None:
        self.mailbox, self.cleaner, self.silence_s = mailbox, cleaner, silence_s
        self.clients = dict(clients)
        self.services = sorted(set(services))
        self.readers = frozenset(readers)
        self.samples = 0
        self.dead: list[int] = []
        self._reported = reported
        self._heard = dict.fromkeys(clients, time.monotonic())
        self._untidy = set(clients)

    def handle(self, header: Header) -> None:
        self._heard_from(header.source)
        if header.kind == Kind.REPORT:
            self.samples += header.samples
            self._reported(header)
        elif header.kind == Kind.PROGRESS:
            left = len(self._untidy - self.readers)
            progress = Header(Kind.PROGRESS, number=header.number, samples=self.samples, clocks=left)
            self.mailbox.send(header.source, ANSWER, progress)
        elif header.kind == Kind.LEAVE:
            self._gone(header.source)
        elif header.kind == Kind.TIDY:
            self._untidy.discard(header.worker)
            if not self._untidy:
                self._stop()

    def tick(self) -> None:
        now = time.monotonic()
        for client, heard in list(self._heard.items()):
            if now - heard > self.silence_s:
                self.dead.append(client)
                self._gone(client)

    def _heard_from(self, client: int) -> None:
        if client in self._heard:
            self._heard[client] = time.monotonic()

    def _gone(self, client: int) -> None:
        if self._heard.pop(client, None) is not None:
            notice = Header(Kind.GONE, worker=client, group=self.clients[client])
            self.mailbox.send(self.cleaner, REQUEST, notice)

    def _stop(self) -> None:
        for client in self.clients:
            self.mailbox.send(client, ANSWER, Header(Kind.STOP))
        for service in self.services:
            self.mailbox.send(service, REQUEST, Header(Kind.STOP))
