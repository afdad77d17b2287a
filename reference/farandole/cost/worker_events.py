"""The events of many workers in the order of their time: each has at most one computation and one message under way.

    events.computes(worker, time)       its computation ends at `time`
    events.arrives(worker, time)        its message arrives at `time`, no earlier than any message sent before it
    for time, worker, arrived in events: …    the earliest first; both may be called meanwhile

Events of the same time happen in the order in which they were added, as those of `runtime.event_queue` do. That queue
is a heap, whose O(log n) steps through memory would be a third of a simulation. Messages need none, since they keep
their order. Of the computations the earliest eighth is found and sorted by numpy, and taken one by one; those that are
added to it meanwhile are few. Cost: O(1) of Python for each event, and eight passes over n numbers for n computations.
"""

from __future__ import annotations

from array import array
from bisect import insort
from collections import deque
from collections.abc import Iterator
from math import inf

import numpy as np

PART = 8  # with a smaller one there are longer lists to insert into, with a larger one more passes over all workers
FEW = 512  # workers: all computations of fewer are in one sorted list


class WorkerEvents:
    """Events of workers 0 to n − 1."""

    def __init__(self, workers: int) -> None:
        self._time = array("d", [inf]) * workers  # of each worker's computation, unless it is among the earliest
        self._number = array("q", [0]) * workers  # in the order in which they were added
        self._times, self._numbers = np.frombuffer(self._time), np.frombuffer(self._number, dtype=np.int64)  # the same
        self._earliest: list[tuple[float, int, int]] = []  # −time, −number, worker; sorted, so the first is the last
        self._border = inf if workers <= FEW else -inf  # a computation up to here is among the earliest
        self._later = 0  # computations that are not among the earliest
        self._messages: deque[tuple[float, int, int]] = deque()
        self._added = 0

    def __bool__(self) -> bool:
        return bool(self._messages or self._earliest or self._later)

    def computes(self, worker: int, time: float) -> None:
        """Let the computation of `worker` end at `time`."""
        self._added += 1
        if time <= self._border:
            insort(self._earliest, (-time, -self._added, worker))
        else:
            self._time[worker], self._number[worker] = time, self._added
            self._later += 1

    def arrives(self, worker: int, time: float) -> None:
        """Let a message of `worker` arrive at `time`."""
        self._added += 1
        self._messages.append((-time, -self._added, worker))

    def __iter__(self) -> Iterator[tuple[float, int, bool]]:
        """Remove and yield all events, those that are added meanwhile among them."""
        messages, earliest = self._messages, self._earliest
        while True:
            if self._later and not earliest:
                self._find_earliest()
            if messages and (not earliest or messages[0] > earliest[-1]):
                time, _, worker = messages.popleft()
                yield -time, worker, True
            elif earliest:
                time, _, worker = earliest.pop()
                yield -time, worker, False
            else:
                return

    def _find_earliest(self) -> None:
        """Sort the earliest part of the computations."""
        workers = len(self._times)
        border = np.partition(self._times, workers // PART)[workers // PART]
        due = np.flatnonzero((self._times <= border) & (self._times < inf))
        times, numbers = self._times[due], self._numbers[due]
        self._border = float(times.max(initial=-inf))
        order = np.lexsort((numbers, times))[::-1]
        self._earliest += zip((-times[order]).tolist(), (-numbers[order]).tolist(), due[order].tolist(), strict=True)
        self._times[due] = inf
        self._later -= len(due)
