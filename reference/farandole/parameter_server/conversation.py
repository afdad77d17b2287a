"""A worker's second thread: puts what is asked to the servers, and takes in what they answer.

Document 004: computing and transferring are the business of different threads. What is asked comes back as a future at
once; the communication thread sends it, takes in the answers, and puts pulled parameters where the caller wants them.
It is the only thread that uses MPI as long as it runs, except for the watchdog's wait around a future.

Where a server or the manager has died and another has taken its place (`succession`), that one is asked
again for whatever has not been answered; the caller notices nothing but the time it takes.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from farandole.parameter_server.header import DENSE, NOBODY, ROW_NUMBER, Header, Kind
from farandole.parameter_server.layout import Layout
from farandole.parameter_server.mailbox import ANSWER, PAUSE_S, PAYLOAD, REQUEST, Mailbox
from farandole.parameter_server.succession import Succession
from farandole.parameter_server.window import Window
from farandole.runtime.communicator import Communicator
from farandole.runtime.failure import PeerLost

Array = NDArray[Any]
ALIVE_S = 0.5  # how often a client that waits says that it is there


@dataclass
class Request:
    """Something asked of several servers, or of the manager, until the last has answered.

    Attributes:
        waiting_for: whose part has not been answered for → who was asked; None: nobody yet.
        into: where what is pulled goes.
        rows: only these of the table; `into` and `gradient` have one row for each.
        encoded: the gradient's parts, by whose they are.
    """

    header: Header
    waiting_for: dict[int, int | None]
    into: Array | None = None
    gradient: Array | None = None
    rows: NDArray[np.int64] | None = None
    encoded: Mapping[int, Array] = field(default_factory=dict)
    future: Future[Any] = field(default_factory=Future)
    answers: list[Header] = field(default_factory=list)


class Conversation:
    """One client's, with those servers whose layouts it has, and with the manager.

    Args:
        group: of the client.
        layouts: server's rank → where its part is in the table.
        dtype: of the table.
        lost: the ranks that have died; None: the first death is the end.
        window: memory shared with the servers, through which whole pulls and pushes then go.
        result: what the future of a request gives, of all its answers; called in the thread.
        relayout: returns the layouts for the given servers, for when they have changed.

    Attributes:
        slot: this rank's part of the window; None without one.
        is_waiting: the caller waits for a future, so that it is not silent, whatever time it takes.
    """

    def __init__(
        self,
        comm: Communicator,
        group: int,
        layouts: dict[int, Layout],
        dtype: np.dtype[Any],
        succession: Succession,
        lost: set[int] | None,
        window: Window | None,
        result: Callable[[list[Header]], Any],
        relayout: Callable[[Sequence[int]], dict[int, Layout]] | None = None,
    ) -> None:
        self.comm, self.group, self.layouts, self.succession = comm, group, layouts, succession
        self.is_waiting = False
        self._dtype, self._window, self._result, self._relayout = dtype, window, result, relayout
        self.slot = window.of(comm.rank) if window else None
        self._mailbox = Mailbox(comm, ANSWER, lost)
        self._missed: set[int] = set()
        self._commands: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._requests: dict[int, Request] = {}
        self._lock = threading.Lock()  # what is asked just as all requests end must end, too
        self._numbers = 0
        self._stopped = False
        self._said_alive = time.monotonic()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._communicate, name="communication", daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Return when everything has left."""
        self._commands.put(None)
        with self.comm.waiting("messages to leave", -1):
            self._thread.join()

    def ask(self, request: Request) -> Future[Any]:
        """Put it to whoever has the parts that it waits for; `NOBODY` stands for the manager."""
        self._numbers += 1
        header = self._signed(request.header)
        header.number = self._numbers
        with self._lock:
            if self._error:
                raise self._error
            if self._stopped:
                request.future.set_result(None)
                return request.future
            self._requests[header.number] = request
            header.settled = min(self._requests) - 1

        def send() -> None:
            if header.number in self._requests:
                self._send_all([(request, home) for home in request.waiting_for])

        self._commands.put(send)
        return request.future

    def tell_managers(self, header: Header) -> None:
        """Tell it to whoever is the manager or may become it; nobody answers."""
        self._signed(header)

        def send() -> None:
            for service in self.succession.managers:
                self._mailbox.send(service, REQUEST, header)

        self._commands.put(send)

    def alive(self) -> None:
        """Tell the manager that we are there, if it has not heard so for a while."""
        if time.monotonic() - self._said_alive > ALIVE_S:
            self._commands.put(self._say_alive)

    @contextmanager
    def waited_for(self) -> Iterator[None]:
        """In the body the caller waits for an answer."""
        self.is_waiting = True
        try:
            yield
        finally:
            self.is_waiting = False

    def all_answered(self) -> None:
        """Return when all that has been asked is answered, however."""
        for request in list(self._requests.values()):
            request.future.exception()

    def _signed(self, header: Header) -> Header:
        """It comes from this client."""
        header.worker, header.group = self.comm.rank, self.group
        return header

    def _send_all(self, asked: Sequence[tuple[Request, int]]) -> None:
        """Put requests, or their parts, to whoever has what they are about as things stand now.

        Whoever learns of a death while it sends must not yet ask the successor: an older request, which has to come
        first, may still be with the dead. What goes to the dead now is asked again, in order.
        """
        for request, home, to in [(each, home, self._whom_to_ask(each.header.kind, home)) for each, home in asked]:
            self._send(request, home, to)

    def _send(self, request: Request, home: int, to: int) -> None:
        request.waiting_for[home] = to
        header, rows, gradient = replace(request.header, home=home), request.rows, request.gradient
        if home in request.encoded:
            self._mailbox.send(to, REQUEST, header)
            self._mailbox.send_payload(to, request.encoded[home])
            return
        if rows is None:
            self._mailbox.send(to, REQUEST, header)
            if gradient is not None and header.part >= 0:
                self._mailbox.send_payload(to, gradient)
            elif gradient is not None and gradient is not self.slot:
                layout = self.layouts[home]
                self._mailbox.send_payload(to, layout.of(gradient), layout.nbytes)
            return
        layout = self.layouts[home]
        here = layout.rows_here(rows)
        header.count = int(here.sum())
        self._mailbox.send(to, REQUEST, header)
        self._mailbox.send_payload(to, layout.to_local(rows[here]))
        if gradient is not None:
            self._mailbox.send_payload(to, np.ascontiguousarray(gradient[here]))

    def _whom_to_ask(self, kind: int, home: int) -> int:
        if home == NOBODY:
            return self.succession.manager
        if home not in self.succession.homes:  # an aggregator
            return home
        return self.succession.tail(home) if kind == Kind.READ else self.succession.head(home)

    def _ask_again(self) -> None:
        """Somebody has died: put all requests that went there, and are not answered, to the successor."""
        self._missed |= self._mailbox.lost or set()
        self._send_all(
            [
                (request, home)
                for request in list(self._requests.values())
                for home, asked in request.waiting_for.items()
                if asked is not None and asked != self._whom_to_ask(request.header.kind, home)
            ]
        )

    def _communicate(self) -> None:
        """The communication thread: until it is told to end, and everything has left."""
        try:
            while True:
                busy = bool(self._requests)
                if (self._mailbox.lost or set()) - self._missed:
                    self._ask_again()
                try:
                    command = self._commands.get(block=not busy)
                    if command is None:
                        break
                    command()
                except queue.Empty:
                    answer = self._mailbox.look()
                    if answer:
                        self._take(answer)
                    else:
                        if self.is_waiting:
                            self._say_alive()
                        time.sleep(PAUSE_S)
            self._mailbox.flush()
        except BaseException as error:
            with self._lock:
                self._error = error
                for request in self._requests.values():
                    request.future.set_exception(error)

    def _say_alive(self) -> None:
        """Whoever waits is not silent; who hangs is, although this thread lives on."""
        if time.monotonic() - self._said_alive > ALIVE_S:
            self._said_alive = time.monotonic()
            self._mailbox.send(self.succession.manager, REQUEST, self._signed(Header(Kind.ALIVE)))

    def _take(self, answer: Header) -> None:
        """An answer has come, perhaps with parameters."""
        if answer.kind == Kind.STOP:  # also for a worker that was thought dead: its other questions stay unanswered
            if self.succession.replicated:  # who has said so may have died before the services heard it
                self.tell_managers(Header(Kind.STOP))
            with self._lock:
                self._stopped = True
                while self._requests:
                    self._requests.popitem()[1].future.set_result(None)
            return
        request = self._request_of(answer)
        if answer.kind == Kind.MOVED:
            self._redirect(answer, request)
            return
        try:
            if answer.kind == Kind.GRANT or (answer.kind == Kind.VALUES and answer.count):
                self._take_values(answer, request)
        except PeerLost as error:  # in the middle of it; the successor will be asked
            self._mailbox.note_loss(error)
            return
        if request:
            request.answers.append(answer)
            del request.waiting_for[answer.home]
            if not request.waiting_for:
                with self._lock:
                    del self._requests[answer.number]
                request.future.set_result(self._result(request.answers))

    def _redirect(self, answer: Header, request: Request | None) -> None:
        """Once all servers have answered that they changed, send the request to those that have the keys now."""
        ring = np.empty(answer.count, ROW_NUMBER)
        self.comm.take(ring, answer.source, PAYLOAD)
        if request and self._relayout:
            del request.waiting_for[answer.home]
            if not request.waiting_for:
                layouts = self._relayout([int(server) for server in ring])
                self.layouts |= layouts  # never empty in between: the caller's thread reads them too
                for gone in self.layouts.keys() - layouts.keys():
                    del self.layouts[gone]
                request.answers.clear()
                request.waiting_for = dict.fromkeys(layouts)
                self._send_all([(request, home) for home in self.layouts])

    def _request_of(self, answer: Header) -> Request | None:
        """The request that this answers; None: it has been answered before, by one that has died since."""
        request = self._requests.get(answer.number)
        return request if request and answer.home in request.waiting_for else None

    def _take_values(self, answer: Header, request: Request | None) -> None:
        """Receive parameters to where they are wanted; if nobody waits for them any more, to nowhere."""
        layout, into = self.layouts[answer.home], request.into if request else None
        if self._window and answer.kind == Kind.GRANT and answer.count == DENSE:
            assert into is not None
            self._window.copy_out(answer.home, into)
        elif answer.count == DENSE and into is not None:
            self.comm.take(layout.of(into), answer.source, PAYLOAD)
        else:
            rows = layout.keys if answer.count == DENSE else answer.count
            values = np.empty((rows, *layout.local_shape[1:]), self._dtype)
            self.comm.take(values, answer.source, PAYLOAD)
            if request and into is not None:
                assert request.rows is not None
                into[layout.rows_here(request.rows)] = values
