"""Nothing waits for ever: a thread that ends a rank stuck in communication.

A blocking MPI call cannot time out by itself, and polling instead would cost every message. So
each wait notes when it began and for whom (two assignments), and one thread per process looks a
few times a second whether that was too long ago.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

import psutil

from farandole.runtime.flight_recorder import FlightRecorder

# What is waited for: the call, then the peer's rank, or -1 for all of them.
Waiting = tuple[str, int]


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
        self.since = 0.0
        self._stopped = threading.Event()

    def begin(self, call: str, peer: int) -> None:
        self.since = time.monotonic()
        self.waiting = (call, peer)
        self.recorder.waits(peer)

    def end(self) -> None:
        self.waiting = None
        self.recorder.goes_on()

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
