"""A thread that answers what comes, while its rank computes.

It looks, sleeps a little if there was nothing, and looks again: MPI's own wait would take a core from those who
compute.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event

PAUSE_S = 200e-6


class Attendant:
    """Calls `look` again and again, until `close`.

    Args:
        look: answers what has come, if anything; whether there was something.
    """

    def __init__(self, name: str, look: Callable[[], bool]) -> None:
        self._closed = Event()
        self._look = look
        self._executor = ThreadPoolExecutor(1, name)
        self._work = self._executor.submit(self._attend)

    def check(self) -> None:
        """Raise what has gone wrong in the thread, if anything has."""
        if self._work.done():
            self._work.result()

    def close(self) -> None:
        """Nothing will come any more."""
        self._closed.set()
        self._work.result()
        self._executor.shutdown()

    def _attend(self) -> None:
        while not self._closed.is_set():
            if not self._look():
                time.sleep(PAUSE_S)
