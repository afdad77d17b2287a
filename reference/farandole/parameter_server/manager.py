"""The manager: hears how the workers get on, notices who has gone, and ends the training.

Document 001's master and document 004's resource manager. At the start it has shared out the keys
and the work (`cluster`); during training every worker reports each iteration to it. A worker that has
finished says so; one that has died, or has been silent for too long, is gone as well. The cleaning node is
told of each. When all are gone and all is tidy, the manager tells everybody to stop.

Where the servers are replicated the first of them take the manager's place when it dies (`succession`).
They have heard the workers' reports, too; whoever waits for the end asks the new one for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from farandole.parameter_server.header import Header, Kind
from farandole.parameter_server.mailbox import ANSWER, REQUEST, Mailbox
from farandole.parameter_server.succession import NobodyToSucceed, Succession


class Manager:
    """One rank's part in it: the manager's, or that of one who may have to take its place.

    Args:
        clients: client's rank → its application.
        services: the ranks of servers, cleaning node and manager.
        reported: called with each worker's report.
        silence_s: a client that says nothing for so long is taken for dead; infinite where who hangs is ended.
        readers: the clients that do not train.
        missed: called on the manager when ranks have died, and when it has become the manager.
        left: called with each client that reports no more.
    """

    kinds = frozenset({Kind.REPORT, Kind.LEAVE, Kind.TIDY, Kind.PROGRESS, Kind.ALIVE})

    def __init__(
        self,
        rank: int,
        mailbox: Mailbox,
        succession: Succession,
        clients: Mapping[int, int],
        services: Iterable[int],
        reported: Callable[[Header], None],
        silence_s: float,
        readers: Iterable[int] = (),
        missed: Callable[[], None] = lambda: None,
        left: Callable[[int], None] = lambda client: None,
    ) -> None:
        self.rank, self.mailbox, self.succession, self.silence_s = rank, mailbox, succession, silence_s
        self.clients = dict(clients)
        self.services = sorted(set(services))
        self.readers = frozenset(readers)
        self.samples = 0
        self.silent: list[int] = []
        self._reported, self._missed, self._left = reported, missed, left
        self._heard = dict.fromkeys(clients, time.monotonic())
        self._ticked = time.monotonic()
        self._untidy = set(clients)
        self._cleaner = succession.cleaner
        self._led = self.leads

    @property
    def leads(self) -> bool:
        return self.succession.manager == self.rank

    def handle(self, header: Header) -> None:
        self._heard_from(header.source)
        if header.kind == Kind.REPORT:
            self.samples += header.samples
            self._reported(header)
        elif header.kind == Kind.PROGRESS:
            left = len(self._untidy - self.readers)
            progress = Header(Kind.PROGRESS, number=header.number, samples=self.samples, workers=left)
            self.mailbox.send(header.source, ANSWER, progress)
        elif header.kind == Kind.LEAVE:
            self._gone(header.source)
        elif header.kind == Kind.TIDY:
            self._untidy.discard(header.worker)
            if not self._untidy:
                self._stop()

    def tick(self) -> None:
        now = time.monotonic()
        if now - self._ticked > self.silence_s / 2:  # we have not listened ourselves
            self._heard = dict.fromkeys(self._heard, now)
        self._ticked = now
        for client, heard in list(self._heard.items()):
            if self.leads and now - heard > self.silence_s:
                self.silent.append(client)
                self._gone(client)

    def miss(self) -> None:
        """Some have died: clients leave something behind; services may leave this one in charge.

        Raises:
            NobodyToSucceed: no worker is left, or nobody for a role.
        """
        before, self._cleaner = self._cleaner, self.succession.cleaner
        if not self.leads:
            return
        if not self._led:  # until now the clients have told another that they are alive
            self._led = True
            self._heard = dict.fromkeys(self._heard, time.monotonic())
        for client in self.succession.lost & self.clients.keys():
            self._gone(client)
        if self.clients.keys() - self.readers <= self.succession.lost:
            raise NobodyToSucceed("all workers have died")
        if self._cleaner != before:
            for client in self._untidy - self._heard.keys():
                self._tell_cleaner(client)
        self._missed()

    def stop(self) -> None:
        """The end has come: if another has said so, tell those whom it may not have reached."""
        if self.succession.replicated:
            self._stop()

    def _heard_from(self, client: int) -> None:
        if client in self._heard:
            self._heard[client] = time.monotonic()

    def _gone(self, client: int) -> None:
        if self._heard.pop(client, None) is not None:
            self._left(client)
            self._tell_cleaner(client)

    def _tell_cleaner(self, client: int) -> None:
        self.mailbox.send(self._cleaner, REQUEST, Header(Kind.GONE, worker=client, group=self.clients[client]))

    def _stop(self) -> None:
        """Tell everybody; first those who could do so as well."""
        for service in self.services:
            self.mailbox.send(service, REQUEST, Header(Kind.STOP))
        for client in self.clients:
            self.mailbox.send(client, ANSWER, Header(Kind.STOP))
