"""Events happen in the order of their time, whenever they are added."""

from __future__ import annotations

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from farandole.runtime.event_queue import EventQueue


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0])))
def test_the_earliest_comes_first_and_of_equals_the_one_that_was_added_first(times: list[float]) -> None:
    queue = EventQueue[tuple[float, int]]()
    for number, time in enumerate(times):
        queue.add(time, (time, number))
    assert list(queue.events()) == sorted((time, number) for number, time in enumerate(times))
    assert (len(queue), queue.next) == (0, inf)


def test_events_that_are_added_meanwhile_happen_too_and_the_clock_is_the_events() -> None:
    queue = EventQueue[str]()
    queue.add(1.0, "first")
    happened = []
    for event in queue.events():
        happened.append((queue.now, event))
        if event == "first":
            queue.add(3.0, "third")
            queue.add(2.0, "second")
    assert happened == [(1.0, "first"), (2.0, "second"), (3.0, "third")]


def test_later_events_wait() -> None:
    queue = EventQueue[object]()
    for time in (1.0, 2.0, 3.0):
        queue.add(time, object())  # objects have no order: only times and numbers are compared
    assert len(list(queue.events(until=2.0))) == 2
    assert (queue.now, len(queue), queue.next) == (2.0, 1, 3.0)
