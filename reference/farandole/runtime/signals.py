"""Termination signals, each handled once and never during a clean-up.

A terminal's Ctrl-C sends SIGINT, ``timeout`` and ``scancel`` send SIGTERM, a terminal that closes sends SIGHUP, and
Ctrl-\\ sends SIGQUIT. For each of them a launch must end its ranks and remove its files. A second signal must not
interrupt this clean-up:

    with signals.held() as signals_held:       from here on signals are only noted,
        start()
        with signals_held.delivered():         but here they have their usual effect,
            watch()
        clean_up()
                                               and noted signals are delivered at the end

`held` is for a library. The caller's handlers are restored and called. The default action, the end of the process by
that signal, follows the clean-up. An ignored signal stays ignored. Outside the main thread, where Python allows no
handlers, nothing changes. `raised` is for a program, which should end by an exception.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

# SIGINT comes first, so its handler is restored last: that handler may raise as soon as it is installed.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
OBEYED_WITHIN_S = 30.0  # if a program still runs this long after a signal, the next one raises again

Handler = Callable[[int, FrameType | None], Any] | int | None


class Terminated(SystemExit):
    """Raised when a signal other than Ctrl-C ends this program; the exit status is 128 + the signal's number.

    Attributes:
        number: the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.number = signal.Signals(number)


class _Deadly(BaseException):
    """Raised in `Held.delivered` by a signal whose default action ends this process; that action follows."""


class Held:
    """The signals that arrived while they were held back."""

    def __init__(self) -> None:
        self._before: dict[int, Handler] = {}
        self._noted: list[int] = []
        self._obeyed: int | None = None  # the signal being handled: it has raised an exception
        self._delivering = False

    @contextmanager
    def delivered(self) -> Iterator[None]:
        """Give signals their usual effect in the block; signals noted before take effect at its start."""
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
            self._delivering, self._obeyed = True, None  # the handler returned without raising

    def _install(self) -> None:
        for number in ENDING:
            if (handler := signal.getsignal(number)) not in (signal.SIG_IGN, None):  # None: not installed from Python
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
    """Hold back termination signals for the duration of the block; a nested block shares the outer one's state."""
    global _held
    if _held or threading.current_thread() is not threading.main_thread():
        # The main thread's state is not shared with other threads.
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
    """Raise KeyboardInterrupt or `Terminated` at a program's first termination signal; ignore further signals.

    After a signal has raised, signals stay ignored after the block, since the program is about to end.
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
