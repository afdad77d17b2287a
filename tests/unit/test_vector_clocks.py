"""Vector clocks per range: which pushes have been received."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from farandole.parameter_server.core.clocks import VectorClocks

pushes = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 5)), max_size=60)


@given(pushes)
def test_whatever_arrives_each_push_is_new_once_and_never_after_a_later_one(pushes: list[tuple[int, int, int]]) -> None:
    """Against the definition: seen means that this clock or a later one was recorded."""
    clocks = VectorClocks()
    noted: list[tuple[int, int, int]] = []
    for part, worker, clock in pushes:
        before = any((part, worker) == other[:2] and clock <= other[2] for other in noted)
        assert clocks.seen(part, worker, clock) == before
        clocks.note(part, worker, clock)
        noted.append((part, worker, clock))
        assert clocks.seen(part, worker, clock)
        in_part = [
            max(c for p, w, c in noted if (p, w) == (part, other)) for other in {w for p, w, _ in noted if p == part}
        ]
        assert clocks.minimum(part) == min(in_part)


def test_ranges_and_workers_are_told_apart() -> None:
    clocks = VectorClocks()
    clocks.note(0, 1, 5)
    assert clocks.seen(0, 1, 5)
    assert clocks.seen(0, 1, 4)
    assert not clocks.seen(0, 1, 6)
    assert not clocks.seen(0, 2, 0)
    assert not clocks.seen(1, 1, 0)


def test_an_older_push_does_not_turn_a_clock_back() -> None:
    clocks = VectorClocks()
    clocks.note(0, 1, 5)
    clocks.note(0, 1, 3)
    assert clocks.seen(0, 1, 5)
    assert clocks.minimum(0) == 5


def test_asking_leaves_nothing_behind() -> None:
    clocks = VectorClocks()
    assert not clocks.seen(0, 1, 0)
    assert clocks.minimum(0) is None
    assert clocks.forget(1) == 0


def test_a_worker_that_is_gone_no_longer_holds_the_minimum_back() -> None:
    clocks = VectorClocks()
    for part in (0, 1, 2):
        clocks.note(part, 1, 9)
    for part in (0, 1):
        clocks.note(part, 2, 4)
    assert [clocks.minimum(part) for part in (0, 1, 2)] == [4, 4, 9]
    assert clocks.forget(2) == 2
    assert [clocks.minimum(part) for part in (0, 1, 2)] == [9, 9, 9]
    assert not clocks.seen(0, 2, 0), "what it pushed is forgotten"
    assert clocks.forget(2) == 0
    clocks.forget(1)
    assert clocks.minimum(0) is None
