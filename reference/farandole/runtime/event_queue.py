"""Events in the order of their time: what every simulation here runs on.

    queue.add(2.5, event)                  `event` happens at 2.5
    for event in queue.events(): …         the earliest first; `queue.now` is its time; `add` may be called meanwhile
    queue.next                             when the earliest will happen, for a loop that has other things to wait for

Events of the same time happen in the order in which they were added, so a simulation is the same every time. Cost:
O(log n) for n events that are still to happen. Source: Law, "Simulation modeling and analysis", 2015, chapter 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from math import inf
from typing import Generic, TypeVar

Event = TypeVar("Event")


class EventQueue(Generic[Event]):
    """Events that are still to happen.

    Attributes:
        now: the time of the last event that has happened; 0 before the first.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Event]] = []  # time, number, event
        self._added = 0

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next(self) -> float:
        """Return the time of the earliest event; infinity: there is none."""
        return self._heap[0][0] if self._heap else inf

    def add(self, time: float, event: Event) -> None:
        """Let `event` happen at `time`."""
        self._added += 1
        heappush(self._heap, (time, self._added, event))

    def events(self, until: float = inf) -> Iterator[Event]:
        """Remove and yield the events up to the time `until`, those that are added meanwhile among them."""
        while self._heap and self._heap[0][0] <= until:
            self.now, _, event = heappop(self._heap)
            yield event
