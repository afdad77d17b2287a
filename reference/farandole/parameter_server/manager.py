"""The manager: receives the workers' reports, detects workers that are gone, and ends the training.

Document 001's master and document 004's resource manager. It has divided the keys and the work at the start
(`cluster`). During training every worker reports each iteration to it. A worker is gone when it reports that it has
finished, when it dies, or when it has sent nothing for too long. The manager reports it to the cleaning node. When all
clients are gone and their state is removed, the manager sends STOP to every rank.

With replicated servers the first live server succeeds a dead manager (`chain_replication`). It has received the
workers' reports, too. Clients that wait for the end send their request to it again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from farandole.parameter_server.chain_replication import ChainReplication, NoSuccessor
from farandole.parameter_server.header import Header, Kind
from farandole.parameter_server.message_queue import ANSWER, REQUEST, MessageQueue


class Manager:
    """The manager's role on one rank, or that of a rank that may succeed the manager.

    Args:
        clients: client's rank → its application.
        services: the ranks of servers, cleaning node and manager.
        reported: called with each worker's report.
        silence_s: a client that sends nothing for this long is declared dead; infinite where hung ranks are killed.
        readers: the clients that do not train.
        on_failure: called on the manager when ranks have died, and when it has become the manager.
        left: called with each client that will send no more reports.

    Attributes:
        leads: this rank is the manager.
        samples: of all reports so far.
        silent: the clients that were declared dead.
    """

    kinds = frozenset({Kind.REPORT, Kind.LEAVE, Kind.TIDY, Kind.PROGRESS, Kind.ALIVE})

    def __init__(
        self,
        rank: int,
        messages: MessageQueue,
        replication: ChainReplication,
        clients: Mapping[int, int],
        services: Iterable[int],
        reported: Callable[[Header], None],
        silence_s: float,
        readers: Iterable[int] = (),
        on_failure: Callable[[], None] = lambda: None,
        left: Callable[[int], None] = lambda client: None,
    ) -> None:
        self.rank, self.messages, self.replication, self.silence_s = rank, messages, replication, silence_s
        self.clients = dict(clients)
        self.services = sorted(set(services))
        self.readers = frozenset(readers)
        self.samples = 0
        self.silent: list[int] = []
        self._reported, self._on_failure, self._left = reported, on_failure, left
        self._last_message = dict.fromkeys(clients, time.monotonic())
        self._ticked = time.monotonic()
        self._untidy = set(clients)
        self._cleaner = replication.cleaner
        self._has_led = self.leads

    @property
    def leads(self) -> bool:
        return self.replication.manager == self.rank

    def handle(self, header: Header) -> None:
        self._note_message(header.source)
        if header.kind == Kind.REPORT:
            self.samples += header.samples
            self._reported(header)
        elif header.kind == Kind.PROGRESS:
            left = len(self._untidy - self.readers)
            progress = Header(Kind.PROGRESS, request_id=header.request_id, samples=self.samples, workers=left)
            self.messages.send(header.source, ANSWER, progress)
        elif header.kind == Kind.LEAVE:
            self._gone(header.source)
        elif header.kind == Kind.TIDY:
            self._untidy.discard(header.worker)
            if not self._untidy:
                self._stop()

    def tick(self) -> None:
        now = time.monotonic()
        if now - self._ticked > self.silence_s / 2:  # this rank has not received messages for that long
            self._last_message = dict.fromkeys(self._last_message, now)
        self._ticked = now
        for client, last in list(self._last_message.items()):
            if self.leads and now - last > self.silence_s:
                self.silent.append(client)
                self._gone(client)

    def on_failure(self) -> None:
        """Report dead clients to the cleaning node; if the manager has died, this rank may be the manager now.

        Raises:
            NoSuccessor: no worker is left, or all ranks that could have a role are dead.
        """
        before, self._cleaner = self._cleaner, self.replication.cleaner
        if not self.leads:
            return
        if not self._has_led:  # until now the clients have sent their heartbeats to another rank
            self._has_led = True
            self._last_message = dict.fromkeys(self._last_message, time.monotonic())
        for client in self.replication.lost & self.clients.keys():
            self._gone(client)
        if self.clients.keys() - self.readers <= self.replication.lost:
            raise NoSuccessor("all workers have died")
        if self._cleaner != before:
            for client in self._untidy - self._last_message.keys():
                self._notify_cleaner(client)
        self._on_failure()

    def stop(self) -> None:
        """STOP has arrived. Its sender may have died before it reached every rank, so possible managers repeat it."""
        if self.replication.replicated:
            self._stop()

    def _note_message(self, client: int) -> None:
        if client in self._last_message:
            self._last_message[client] = time.monotonic()

    def _gone(self, client: int) -> None:
        if self._last_message.pop(client, None) is not None:
            self._left(client)
            self._notify_cleaner(client)

    def _notify_cleaner(self, client: int) -> None:
        self.messages.send(self._cleaner, REQUEST, Header(Kind.GONE, worker=client, group=self.clients[client]))

    def _stop(self) -> None:
        """Send STOP to every rank; first to the services, which could succeed this one and repeat it."""
        for service in self.services:
            self.messages.send(service, REQUEST, Header(Kind.STOP))
        for client in self.clients:
            self.messages.send(client, ANSWER, Header(Kind.STOP))
