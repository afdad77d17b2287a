"""The worker's side: asks, pushes and goes on computing, while a second thread talks to the servers.

Document 004: computing and transferring are the business of different threads. Every call here
returns a future at once; the communication thread sends what was asked for, takes in the answers,
and puts pulled parameters where the caller wants them. It is the only thread that uses MPI as long
as the client is open, except for the watchdog's wait around a future.

Where a server or the manager has died and another has taken its place (`succession`), that one is asked
again for whatever has not been answered; the caller notices nothing but the time it takes.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from farandole.parameter_server.header import DENSE, ENCODED, LAST, NOBODY, Header, Kind
from farandole.parameter_server.keys import KeyRange
from farandole.parameter_server.layout import Layout
from farandole.parameter_server.mailbox import ANSWER, PAUSE_S, PAYLOAD, REQUEST, Mailbox
from farandole.parameter_server.succession import Succession
from farandole.parameter_server.window import Window
from farandole.runtime.communicator import Communicator
from farandole.runtime.failure import PeerLost

Array = NDArray[Any]
Command = Callable[[], None]
ALIVE_S = 0.5  # how often a client that waits says that it is there


@dataclass(frozen=True)
class Start:
    """Permission to start an iteration.

    Attributes:
        clock: its number.
        number: of the pull that it answers.
        lead: how many iterations we are ahead of the slowest.
        held_s: how long the servers' policies made us wait.
    """

    clock: int
    number: int
    lead: int
    held_s: float


@dataclass(frozen=True)
class Progress:
    """How far the workers are: the samples they have reported, and how many workers are still there."""

    samples: int
    workers: int


@dataclass
class _Request:
    """Something asked of several servers, or of the manager, until the last has answered.

    Attributes:
        waiting_for: whose part has not been answered for → who was asked; None: nobody yet.
        encoded: the gradient's parts, by whose they are.
    """

    header: Header
    future: Future[Any]
    waiting_for: dict[int, int | None]
    into: Array | None = None
    gradient: Array | None = None
    rows: NDArray[np.int64] | None = None
    encoded: Mapping[int, Array] = field(default_factory=dict)
    answers: list[Header] = field(default_factory=list)


class Client:
    """One worker's, or aggregator's, connection to the servers of its application.

    Args:
        assignment: server's rank → its ranges.
        table: an array of the shape and type of what is pulled.
        succession: who takes the place of whom.
        lost: the ranks that have died; None: the first death is the end.
        window: memory shared with the servers, through which whole pulls and pushes then go.

    Attributes:
        lead: histogram, how far we were ahead of the slowest at each start.
        staleness: histogram of the staleness of our gradients when they were applied.
        dropped: how many of our gradients were not applied.
    """

    def __init__(
        self,
        comm: Communicator,
        assignment: Mapping[int, Sequence[KeyRange]],
        table: Array,
        succession: Succession,
        *,
        lost: set[int] | None = None,
        group: int = 0,
        window: Window | None = None,
    ) -> None:
        self.comm, self.rank, self.group, self.succession = comm, comm.rank, group, succession
        self.layouts = {server: Layout(ranges, table.shape, table.dtype) for server, ranges in assignment.items()}
        self.lead: Counter[int] = Counter()
        self.staleness: Counter[int] = Counter()
        self.dropped = 0
        self._dtype = table.dtype
        self._window = window
        self._slot = window.of(comm.rank) if window else None
        self._last_push: Future[Any] | None = None
        self._mailbox = Mailbox(comm, ANSWER, lost)
        self._missed: set[int] = set()
        self._commands: queue.SimpleQueue[Command | None] = queue.SimpleQueue()
        self._requests: dict[int, _Request] = {}
        self._lock = threading.Lock()  # what is asked just as all requests end must end, too
        self._numbers = 0
        self._stopped = False
        self._is_waiting = False
        self._said_alive = time.monotonic()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._communicate, name="communication", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None:
            self._commands.put(None)
            with self.comm.waiting("messages to leave", -1):
                self._thread.join()

    def start(self, into: Array, rows: NDArray[np.int64] | None = None) -> Future[Start | None]:
        """Ask to start the next iteration; the parameters come into `into`.

        Args:
            rows: only these rows of the table, ascending; `into` then has one row for each.

        Returns:
            A future: which iteration it is, or None when there is no work left.
        """
        return self._ask(Header(Kind.PULL), into=into, rows=rows)

    def push(
        self, gradient: Array, clock: int, share: float, rows: NDArray[np.int64] | None = None, read: int = LAST
    ) -> Future[int | None]:
        """Push iteration `clock`'s gradient; it must stay as it is until the future is done.

        Args:
            rows: the gradient's rows of the table, ascending, if it is sparse.
            read: `Start.number` of the pull that it was computed at, if that was not the last one.

        Returns:
            A future: the gradient's staleness when it was applied, or None if it was dropped.
        """
        if self._slot is not None and rows is None:
            if self._last_push:
                self.wait(self._last_push, "the answer to a push")  # until then a server may be reading the slot
            if gradient is not self._slot:
                self._slot[:] = gradient
            gradient = self._slot
        self._last_push = self._ask(
            Header(Kind.PUSH, clock=clock, share=share, read=read), gradient=gradient, rows=rows
        )
        return self._last_push

    def push_encoded(self, payloads: Mapping[int, Array], clock: int, share: float) -> Future[int | None]:
        """Push iteration `clock`'s gradient, each server's part (`Layout.part`) in the bytes that its decoder knows."""
        self._last_push = self._ask(Header(Kind.PUSH, clock=clock, share=share, count=ENCODED), encoded=payloads)
        return self._last_push

    @property
    def slot(self) -> Array | None:
        """Where a gradient may be put together, so that pushing it copies nothing; None without a window."""
        return self._slot

    def push_range(self, gradient: Array, server: int, part: int, clock: int, share: float) -> Future[int | None]:
        """Push only the given one of a server's ranges; the gradient counts once all its ranges are there.

        Args:
            gradient: that range's part alone.
        """
        return self._ask(Header(Kind.PUSH, clock=clock, share=share, part=part), {server}, gradient=gradient)

    def read(self, into: Array) -> Future[dict[int, int]]:
        """Read the parameters as they are now, whatever the policy: for those who do not train.

        Returns:
            A future: each server's version of its part, the number of times that it had moved it.
        """
        return self._ask(Header(Kind.READ), into=into)

    def versions(self) -> Future[dict[int, int]]:
        """Ask for the servers' versions alone."""
        return self._ask(Header(Kind.READ, count=0))

    def progress(self) -> Future[Progress]:
        """Ask the manager how far the workers are: for those who do not train."""
        return self._ask(Header(Kind.PROGRESS), {NOBODY})

    def report(self, clock: int, loss: float, samples: int, right: int = 0, baseline: int = 0) -> None:
        """Tell the manager how an iteration went; the last two are for `online`."""
        report = Header(Kind.REPORT, clock=clock, loss=loss, samples=samples, right=right, baseline=baseline)
        report.worker, report.group = self.rank, self.group
        self._commands.put(lambda: self._tell_managers(report))

    def alive(self) -> None:
        """Tell the manager that we are there, if it has not heard so for a while; for whoever waits elsewhere."""
        if time.monotonic() - self._said_alive > ALIVE_S:
            self._commands.put(self._say_alive)

    def leave(self) -> Future[None]:
        """Tell the manager that we have finished; the future is done when everybody may go."""
        with self.comm.waiting("answers to pushes", -1):
            for request in list(self._requests.values()):
                request.future.exception()
        return self._ask(Header(Kind.LEAVE), {NOBODY})

    def wait(self, future: Future[Any], call: str) -> Any:
        """A future's result, under the eye of the watchdog."""
        server = next(iter(self.layouts)) if len(self.layouts) == 1 else -1
        with self.comm.waiting(call, server):
            self._is_waiting = True
            try:
                return future.result()
            finally:
                self._is_waiting = False

    def _ask(
        self,
        header: Header,
        of: set[int] | None = None,
        *,
        into: Array | None = None,
        gradient: Array | None = None,
        rows: NDArray[np.int64] | None = None,
        encoded: Mapping[int, Array] | None = None,
    ) -> Future[Any]:
        """Put a request to whoever has these servers' parts, by default all; `NOBODY` stands for the manager."""
        self._numbers += 1
        header.worker, header.group, header.number = self.rank, self.group, self._numbers
        request = _Request(
            header, Future(), dict.fromkeys(sorted(of or self.layouts)), into, gradient, rows, encoded or {}
        )
        with self._lock:
            if self._error:
                raise self._error
            if self._stopped:
                request.future.set_result(None)
                return request.future
            self._requests[header.number] = request
            header.settled = min(self._requests) - 1

        def send() -> None:
            for home in request.waiting_for if header.number in self._requests else ():
                self._send(request, home)

        self._commands.put(send)
        return request.future

    def _send(self, request: _Request, home: int) -> None:
        to = self._whom_to_ask(request.header.kind, home)
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
            elif gradient is not None and gradient is not self._slot:
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
        for request in list(self._requests.values()):
            for home, asked in request.waiting_for.items():
                if asked is not None and asked != self._whom_to_ask(request.header.kind, home):
                    self._send(request, home)

    def _tell_managers(self, header: Header) -> None:
        for service in self.succession.managers:
            self._mailbox.send(service, REQUEST, header)

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
                        if self._is_waiting:
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
            alive = Header(Kind.ALIVE, worker=self.rank, group=self.group)
            self._mailbox.send(self.succession.manager, REQUEST, alive)

    def _take(self, answer: Header) -> None:
        """An answer has come, perhaps with parameters."""
        if answer.kind == Kind.STOP:  # also for a worker that was thought dead: its other questions stay unanswered
            with self._lock:
                self._stopped = True
                while self._requests:
                    self._requests.popitem()[1].future.set_result(None)
            return
        request = self._request_of(answer)
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

    def _request_of(self, answer: Header) -> _Request | None:
        """The request that this answers; None: it has been answered before, by one that has died since."""
        request = self._requests.get(answer.number)
        return request if request and answer.home in request.waiting_for else None

    def _take_values(self, answer: Header, request: _Request | None) -> None:
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

    def _result(self, answers: list[Header]) -> Any:
        """What the future of a request gives, now that all servers have answered."""
        kinds = {Kind(answer.kind) for answer in answers}
        if Kind.GRANT in kinds and Kind.FINISHED not in kinds:
            # Servers that have seen different gradients may be at different steps: ours is the furthest.
            start = Start(
                clock=max(answer.clock for answer in answers),
                number=answers[0].number,
                lead=max(answer.lead for answer in answers),
                held_s=max(answer.seconds for answer in answers),
            )
            self.lead[start.lead] += 1
            return start
        if Kind.APPLIED in kinds:
            staleness = max(answer.staleness for answer in answers)
            self.staleness[staleness] += 1
            return staleness
        if Kind.VALUES in kinds:
            return {answer.home: answer.clock for answer in answers}
        if Kind.PROGRESS in kinds:
            return Progress(answers[0].samples, answers[0].workers)
        self.dropped += Kind.DROPPED in kinds
        return None
