"""A thread that answers messages while its rank computes.

It polls, and sleeps for a short time if no message has arrived: MPI's own wait would occupy a core that other ranks
compute on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event

PAUSE_S = 200e-6


class ResponderThread:
    """Calls `answer` repeatedly until `close`.

    Args:
        answer: answers one message, if one has arrived; returns whether there was one.
    """

    def __init__(self, name: str, answer: Callable[[], bool]) -> None:
        self._closed = Event()
        self._answer = answer
        self._executor = ThreadPoolExecutor(1, name)
        self._work = self._executor.submit(self._respond)

    def check(self) -> None:
        """Raise the error that has ended the thread, if one has."""
        if self._work.done():
            self._work.result()

    def close(self) -> None:
        """End the thread: no further message will arrive."""
        self._closed.set()
        self._work.result()
        self._executor.shutdown()

    def _respond(self) -> None:
        while not self._closed.is_set():
            if not self._answer():
                time.sleep(PAUSE_S)
