"""The communication thread of a client: sends its requests to the servers and receives their answers.

Document 004: a client computes and transfers in different threads. `call` returns a future at once. The thread
sends the request, receives the answers, and puts pulled parameters where the caller wants them. While it runs it is the
only thread that uses MPI, except for the watchdog's wait around a future.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import numpy as np

from farandole.parameter_server.chain_replication import ChainReplication
from farandole.parameter_server.header import DENSE, NO_PARTITION, ROW_NUMBER, Header, Kind
from farandole.parameter_server.layout import Layout
from farandole.parameter_server.message_queue import ANSWER, PAUSE_S, PAYLOAD, REQUEST, MessageQueue
from farandole.parameter_server.request import Request
from farandole.parameter_server.window import Window
from farandole.runtime.communicator import Communicator
from farandole.runtime.failure import PeerLost

HEARTBEAT_S = 0.5  # between two heartbeats of a client that waits


class RpcChannel:
    """One client's channel to the servers in `layouts` and to the manager.

    Args:
        group: the client's application.
        layouts: partition → where its keys are in the table.
        lost: the dead ranks; None: the first failure ends the job.
        window: memory shared with the servers, through which whole pulls and pushes then go.
        result: returns a request's result from all its answers; called in the thread.
        relayout: returns the layouts for the given servers, for when they have changed.
    """

    def __init__(
        self,
        comm: Communicator,
        group: int,
        layouts: dict[int, Layout],
        dtype: np.dtype[Any],
        replication: ChainReplication,
        lost: set[int] | None,
        window: Window | None,
        result: Callable[[list[Header]], Any],
        relayout: Callable[[Sequence[int]], dict[int, Layout]] | None = None,
    ) -> None:
        self.comm, self.group, self.layouts, self.replication = comm, group, layouts, replication
        self._dtype, self._window, self._result, self._relayout = dtype, window, result, relayout
        self._messages = MessageQueue(comm, ANSWER, lost)
        self._handled_failures: set[int] = set()
        self._commands: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._requests: dict[int, Request] = {}
        self._lock = threading.Lock()  # a request made just as all requests end must end, too
        self._last_id, self._stopped, self._is_waiting = 0, False, False
        self._last_heartbeat = time.monotonic()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._communicate, name="communication", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Block until everything has been sent, and end the thread."""
        self._commands.put(None)
        with self.comm.waiting("messages to leave", -1):
            self._thread.join()

    def call(self, request: Request) -> Future[Any]:
        """Send a request to the ranks that have its partitions; `NO_PARTITION` stands for the manager."""
        self._last_id += 1
        header = self._from_here(request.header)
        header.request_id = self._last_id
        with self._lock:
            if self._error:
                raise self._error
            if self._stopped:
                request.future.set_result(None)
                return request.future
            self._requests[header.request_id] = request
            header.acked_through = min(self._requests) - 1

        def send() -> None:
            if header.request_id in self._requests:
                self._send_all([(request, partition) for partition in request.waiting_for])

        self._commands.put(send)
        return request.future

    def notify_managers(self, header: Header) -> None:
        """Send a message without an answer to the manager and to every rank that may succeed it."""
        self._from_here(header)

        def send() -> None:
            for manager in self.replication.managers:
                self._messages.send(manager, REQUEST, header)

        self._commands.put(send)

    def heartbeat(self) -> None:
        """Send the manager a heartbeat, if the last one is old enough; for a caller that waits for other messages."""
        if time.monotonic() - self._last_heartbeat > HEARTBEAT_S:
            self._commands.put(self._send_heartbeat)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """In the body the caller waits for an answer; the thread then sends heartbeats, however long the wait."""
        self._is_waiting = True
        try:
            yield
        finally:
            self._is_waiting = False

    def wait_for_all(self) -> None:
        """Block until every request has an answer or an error."""
        for request in list(self._requests.values()):
            request.future.exception()

    def _from_here(self, header: Header) -> Header:
        header.worker, header.group = self.comm.rank, self.group
        return header

    def _send_all(self, parts: Sequence[tuple[Request, int]]) -> None:
        """Send requests' parts to the ranks that have their partitions at present.

        All destinations are determined before the first send. A send may detect a failure, but the successor must not
        get this request before the older ones that died with the failed rank. `_retry` sends them again, in order.
        """
        for request, partition, to in [(*part, self._destination(part[0].header.kind, part[1])) for part in parts]:
            request.waiting_for[partition] = to
            header, payload = request.message(partition, self.layouts)
            self._messages.send(to, REQUEST, header)
            for buffer, nbytes in payload:
                self._messages.send_payload(to, buffer, nbytes)

    def _destination(self, kind: int, partition: int) -> int:
        if partition == NO_PARTITION:
            return self.replication.manager
        if partition not in self.replication.partitions:  # an aggregator
            return partition
        return self.replication.tail(partition) if kind == Kind.READ else self.replication.head(partition)

    def _retry(self) -> None:
        """After a failure: send all unanswered requests of the dead ranks to their successors (`chain_replication`)."""
        self._handled_failures |= self._messages.lost or set()
        moved = [
            (request, partition)
            for request in list(self._requests.values())
            for partition, sent_to in request.waiting_for.items()
            if sent_to is not None and sent_to != self._destination(request.header.kind, partition)
        ]
        self._send_all(moved)

    def _communicate(self) -> None:
        """The thread: run commands and receive answers, until `close`."""
        try:
            while True:
                if (self._messages.lost or set()) - self._handled_failures:
                    self._retry()
                try:
                    if (command := self._commands.get(block=not self._requests)) is None:
                        break
                    if stop := self._messages.missed():  # declared dead in a long computation: no server receives now
                        self._receive(stop)
                    command()
                except queue.Empty:
                    if answer := self._messages.poll():
                        self._receive(answer)
                        continue
                    if self._is_waiting:
                        self._send_heartbeat()
                    time.sleep(PAUSE_S)
            self._messages.flush()
        except BaseException as error:
            with self._lock:
                self._error = error
                for request in self._requests.values():
                    request.future.set_exception(error)

    def _send_heartbeat(self) -> None:
        """Sent only for a caller that waits: this thread lives on when the caller hangs."""
        if time.monotonic() - self._last_heartbeat > HEARTBEAT_S:
            self._last_heartbeat = time.monotonic()
            self._messages.send(self.replication.manager, REQUEST, self._from_here(Header(Kind.ALIVE)))

    def _receive(self, answer: Header) -> None:
        """An answer has arrived, perhaps with parameters."""
        if answer.kind == Kind.STOP:  # a worker that was declared dead gets it, too: its requests end without an answer
            self._stop()
            return
        request = self._requests.get(answer.request_id)
        if request and answer.partition not in request.waiting_for:  # a rank that has died since has answered it
            request = None
        if answer.kind == Kind.MOVED:
            self._redirect(answer, request)
            return
        try:
            if answer.kind == Kind.GRANT or (answer.kind == Kind.VALUES and answer.count):
                self._receive_values(answer, request)
        except PeerLost as error:  # in the middle of the payload; `_retry` sends the request to the successor
            self._messages.on_failure(error)
            return
        if request:
            request.answers.append(answer)
            del request.waiting_for[answer.partition]
            if not request.waiting_for:
                with self._lock:
                    del self._requests[answer.request_id]
                request.future.set_result(self._result(request.answers))

    def _stop(self) -> None:
        if self.replication.replicated:  # the manager may have died before its STOP reached the other services
            self.notify_managers(Header(Kind.STOP))
        with self._lock:
            self._stopped = True
            while self._requests:
                self._requests.popitem()[1].future.set_result(None)

    def _redirect(self, answer: Header, request: Request | None) -> None:
        """Once all servers have answered that they changed, send the request to those that have the keys now."""
        ring = np.empty(answer.count, ROW_NUMBER)
        self.comm.take(ring, answer.source, PAYLOAD)
        if not request or not self._relayout:
            return
        del request.waiting_for[answer.partition]
        if not request.waiting_for:
            layouts = self._relayout([int(server) for server in ring])
            self.layouts |= layouts  # never empty in between: the caller's thread reads them too
            for gone in self.layouts.keys() - layouts.keys():
                del self.layouts[gone]
            request.answers.clear()
            request.waiting_for = dict.fromkeys(layouts)
            self._send_all([(request, partition) for partition in self.layouts])

    def _receive_values(self, answer: Header, request: Request | None) -> None:
        """Receive parameters into the request's array; without a request they are received and discarded."""
        request = request or Request(answer, {})
        if self._window and answer.kind == Kind.GRANT and answer.count == DENSE:
            if request.into is not None:
                self._window.copy_out(answer.partition, answer.clock, request.into)
        else:
            request.receive(self.comm, answer, self.layouts[answer.partition], self._dtype)
