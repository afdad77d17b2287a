"""A thread that ends a rank which waits too long in communication.

A blocking MPI call has no time-out, and polling instead would delay every message. So each wait notes when it began and
for which rank (two assignments), and one thread per process checks a few times a second whether that was too long ago.
A wait within another one, of the same thread, is checked instead of the outer one, whose time begins anew afterwards.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import psutil

from farandole.runtime.flight_recorder import FlightRecorder

# What is waited for: the call, then the peer's rank, or -1 for all of them.
Waiting = tuple[str, int]


@dataclass(frozen=True)
class Outer:
    """A wait within which another one has begun.

    Attributes:
        working: it had been interrupted already, by the rank's own work.
    """

    waiting: Waiting
    working: bool


class Watchdog(threading.Thread):
    """Calls `expire(waiting, seconds)` once a wait has lasted longer than `limit_s`.

    It also ends the process when `launcher` (a process id on this machine) is gone, so that a
    launcher killed by SIGKILL leaves no rank behind.
    """

    def __init__(
        self,
        limit_s: float,
        recorder: FlightRecorder,
        expire: Callable[[Waiting, float], None],
        launcher: int | None = None,
    ) -> None:
        super().__init__(name="watchdog", daemon=True)
        self.limit_s = limit_s
        self.recorder = recorder
        self.expire = expire
        self.launcher = launcher
        self.waiting: Waiting | None = None
        self._who = 0  # the thread that waits
        self.since = 0.0
        self._stopped = threading.Event()

    def begin(self, call: str, peer: int) -> Outer | None:
        """From now on `peer` is waited for; returns what `end` is to be given."""
        before = self.waiting
        if before and self._who != threading.get_ident():
            before = None
        outer = Outer(before, self.recorder.position.working) if before else None
        self._wait_for((call, peer))
        return outer

    def end(self, outer: Outer | None = None) -> None:
        """Nothing is waited for any more, or what was before."""
        if outer is None:
            self.waiting = None
            self.recorder.goes_on()
            return
        self._wait_for(outer.waiting)
        if outer.working:
            self.recorder.works_meanwhile()

    def wait_anew(self) -> None:
        """Go on waiting, as if it had begun now."""
        if self.waiting:
            self._wait_for(self.waiting)

    def _wait_for(self, waiting: Waiting) -> None:
        self.since, self._who = time.monotonic(), threading.get_ident()
        self.waiting = waiting
        self.recorder.waits(waiting[1])

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        pause = min(0.5, self.limit_s / 4)
        while not self._stopped.wait(pause):
            waiting, seconds = self.waiting, time.monotonic() - self.since
            if waiting is not None and seconds > self.limit_s:
                self.expire(waiting, seconds)
                return
            if self.launcher is not None and not psutil.pid_exists(self.launcher):
                os._exit(1)
