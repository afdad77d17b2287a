"""The signals that ask a process to end, obeyed once and never in the middle of clearing up.

A terminal's Ctrl-C sends SIGINT, ``timeout`` and ``scancel`` send SIGTERM, a terminal that closes sends SIGHUP, and
Ctrl-\\ sends SIGQUIT. A launch must end its ranks and remove its files whichever it is, and a second one that arrives
meanwhile must not interrupt that:

    with signals.held() as signals_held:       from here on they are only noted,
        start()
        with signals_held.delivered():         but here they do what they would have done,
            watch()
        clean_up()
                                               and what was noted is delivered at the end

This is for a library: the caller's handlers are put back and called, the default action (the end of the process, by
that signal) is taken after the clean-up, an ignored signal stays ignored, and outside the main thread, where Python
allows no handlers, nothing is changed. `raised` is for a program, which is to leave by an exception.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

# SIGINT comes first: it is put back last, for its handler may raise at any moment from then on.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
OBEYED_WITHIN_S = 30.0  # if a program still runs so long after a signal, the next one raises again

Handler = Callable[[int, FrameType | None], Any] | int | None


class Terminated(SystemExit):
    """A signal other than Ctrl-C has asked this program to end; its exit status is 128 + the signal's number.

    Attributes:
        number: the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.number = signal.Signals(number)


class _Deadly(BaseException):
    """A signal has come that ends this process by default; raised in `Held.delivered`, and followed by that end."""


class Held:
    """The signals that have come while they were held back."""

    def __init__(self) -> None:
        self._before: dict[int, Handler] = {}
        self._noted: list[int] = []
        self._obeyed: int | None = None  # the one that is being obeyed: it has raised an exception
        self._delivering = False

    @contextmanager
    def delivered(self) -> Iterator[None]:
        """Let signals do in the body what they would do without us; those noted before do it at once."""
        self._delivering = True
        try:
            self._deliver()
            yield
        finally:
            self._delivering = False

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._noted.append(number)
        if self._delivering:
            self._deliver(frame)

    def _deliver(self, frame: FrameType | None = None) -> None:
        while self._noted:
            number = self._noted.pop(0)
            handler = self._before[number]
            self._delivering, self._obeyed = False, number
            if not callable(handler):
                raise _Deadly
            handler(number, frame)
            self._delivering, self._obeyed = True, None  # it only took notice

    def _install(self) -> None:
        for number in ENDING:
            if (handler := signal.getsignal(number)) not in (signal.SIG_IGN, None):  # None: not Python's
                self._before[number] = handler
                signal.signal(number, self._note)

    def _put_back(self) -> None:
        for number in reversed(self._before):
            signal.signal(number, self._before[number])
        missed = [number for number in dict.fromkeys(self._noted) if number != self._obeyed]
        if self._obeyed and not callable(self._before[self._obeyed]):
            missed.insert(0, self._obeyed)
        for number in missed:
            signal.raise_signal(number)


_held: Held | None = None


@contextmanager
def held() -> Iterator[Held]:
    """Hold back the signals that ask for the end; within another such block, go on with that one."""
    global _held
    if _held or threading.current_thread() is not threading.main_thread():
        # What another thread holds is the main thread's.
        yield _held if _held and threading.current_thread() is threading.main_thread() else Held()
        return
    _held = Held()
    _held._install()
    try:
        yield _held
    finally:
        done, _held = _held, None
        done._put_back()


@contextmanager
def raised() -> Iterator[None]:
    """For a program: the first signal raises KeyboardInterrupt or `Terminated`; others meanwhile are ignored.

    Once one has been raised, they stay ignored after the block: the program is about to leave.
    """
    last_s: float | None = None

    def strike(number: int, _: FrameType | None) -> None:
        nonlocal last_s
        if last_s is not None and time.monotonic() - last_s < OBEYED_WITHIN_S:
            return
        last_s = time.monotonic()
        raise KeyboardInterrupt if number == signal.SIGINT else Terminated(number)

    before: dict[int, Handler] = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in ENDING}
        before = {number: handler for number, handler in before.items() if handler not in (signal.SIG_IGN, None)}
        for number in before:
            signal.signal(number, strike)
    try:
        yield
    finally:
        for number in reversed(before):
            signal.signal(number, before[number] if last_s is None else signal.SIG_IGN)
