"""The view of the members: slots stay filled while a spare waits, and close up when none does."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farandole.recovery.view import NOBODY, View


@st.composite
def launches(draw: st.DrawFn) -> tuple[int, int]:
    """Draw the number of ranks, and of spares among them."""
    ranks = draw(st.integers(1, 9))
    return ranks, draw(st.integers(0, ranks - 1))


@st.composite
def losses(draw: st.DrawFn) -> tuple[View, list[set[int]]]:
    """Draw the first view, and the deaths in each change."""
    ranks, spares = draw(launches())
    order = draw(st.permutations(range(ranks)))[: draw(st.integers(0, ranks))]
    groups: list[set[int]] = []
    for rank in order:
        if groups and draw(st.booleans()):
            groups[-1].add(rank)
        else:
            groups.append({rank})
    return View.first(ranks, spares), groups


@given(launches())
def test_at_first_the_last_ranks_wait_and_rank_0_leads(launch: tuple[int, int]) -> None:
    ranks, spares = launch
    view = View.first(ranks, spares)
    assert view.number == 0
    assert view.workers == tuple(range(ranks - spares))
    assert view.spares == tuple(range(ranks - spares, ranks))
    assert view.members == tuple(range(ranks))
    assert view.coordinator == 0


@given(losses())
def test_whoever_dies_the_view_says_exactly_who_lives(case: tuple[View, list[set[int]]]) -> None:
    view, groups = case
    first = view
    dead: set[int] = set()
    for number, lost in enumerate(groups, 1):
        before, view = view, view.without(lost)
        dead |= lost
        assert view.number == number
        assert set(view.members) == set(first.members) - dead
        assert len(set(view.members)) == len(view.members), "nobody has two slots"
        assert view.spares == tuple(spare for spare in first.spares if spare in view.spares), "they wait in their order"
        assert len(view.workers) == min(len(before.workers), len(view.members)), "no spare waits while a slot is free"
        assert view.coordinator == before.coordinator, "that is for an election"


@given(losses())
def test_while_there_are_spares_who_lives_keeps_its_place(case: tuple[View, list[set[int]]]) -> None:
    view, groups = case
    for lost in groups:
        before, view = view, view.without(lost)
        kept = [worker for worker in before.workers if worker not in lost]
        if len(view.workers) == len(before.workers):
            assert [view.slot(worker) for worker in kept] == [before.slot(worker) for worker in kept]
        assert [worker for worker in view.workers if worker in kept] == kept, "and always the order"


@given(losses())
def test_nobody_is_lost_by_losing_nobody(case: tuple[View, list[set[int]]]) -> None:
    view, _ = case
    same = view.without([])
    assert (same.number, same.workers, same.spares, same.coordinator) == (
        1,
        view.workers,
        view.spares,
        view.coordinator,
    )


@pytest.mark.parametrize("order", list(permutations([0, 1, 2, 4])))
def test_one_after_the_other_in_every_order_only_the_last_one_is_left(order: tuple[int, ...]) -> None:
    """Rank 3 is one of two spares and lives."""
    view = View.first(5, 2)
    for lost in order:
        view = view.without([lost])
    assert view.workers == (3,)
    assert view.spares == ()
    assert [view.slot(rank) for rank in range(5)] == [None, None, None, 0, None]


def test_a_spare_takes_the_very_place_and_without_one_the_places_close_up() -> None:
    view = View.first(6, 2).without([1])
    assert (view.workers, view.spares) == ((0, 4, 2, 3), (5,))
    view = view.without([0, 2])
    assert (view.workers, view.spares) == ((5, 4, 3), ()), "the first free slot is filled first"


def test_a_spare_that_has_died_takes_no_place() -> None:
    view = View.first(5, 2).without([0, 3])
    assert (view.workers, view.spares) == ((4, 1, 2), ())


def test_only_who_works_has_a_place() -> None:
    view = View.first(4, 1)
    assert [view.slot(rank) for rank in range(4)] == [0, 1, 2, None]


@given(launches(), st.integers(0, 9))
def test_more_workers_are_the_first_spares_in_new_places(launch: tuple[int, int], more: int) -> None:
    view = View.first(*launch)
    larger = view.enlarged(more)
    assert larger.members == view.members
    assert len(larger.workers) == len(view.workers) + min(more, len(view.spares))
    assert [larger.slot(worker) for worker in view.workers] == [view.slot(worker) for worker in view.workers]


def test_who_comes_later_waits_outside_alone_and_follows_nobody() -> None:
    view = View.outside(7)
    assert (view.number, view.workers, view.spares, view.coordinator) == (0, (), (7,), NOBODY)
    assert view.slot(7) is None
    assert not view.lacks_a_worker
    assert (view.slots, view.starts, view.spawned) == (0, 0, None), "it starts no process"
    assert view.without([]).members == (7,), "and takes no slot by itself"
    assert view.without([]).workers == ()


def test_a_process_is_started_only_where_a_place_is_free_and_no_spare_is_left() -> None:
    view = View.first(4, 1, starts=1)
    assert not view.lacks_a_worker
    assert not view.without([0]).lacks_a_worker
    assert view.without([0, 1]).lacks_a_worker
    assert not View.first(4, 1).without([0, 1]).lacks_a_worker, "none may be started"


def test_who_comes_later_has_a_number_of_its_own_and_takes_the_free_place() -> None:
    view = View.first(3, 0, starts=2).without([1]).spawning()
    assert (view.spawned, view.starts, view.workers) == (3, 1, (0, 2))
    assert not view.lacks_a_worker, "one at a time"
    view = view.with_spawned().without([])
    assert (view.workers, view.spares, view.spawned) == ((0, 2, 3), (), None)
    view = view.without([3]).spawning()
    assert (view.spawned, view.starts) == (4, 0)


def test_who_was_sent_for_still_comes_where_only_a_worker_dies() -> None:
    view = View.first(4, 0, starts=2).without([3]).spawning()
    assert view.without([1]).spawned == 4, "the coordinator that has spawned it lives"
    assert view.without([0]).spawned is None


def test_it_takes_the_place_of_who_dies_as_it_comes_and_another_one_is_sent_for() -> None:
    view = View.first(3, 0, starts=2).without([1]).spawning().with_spawned().without([0])
    assert view.workers == (3, 2)
    assert view.lacks_a_worker


@pytest.mark.parametrize("gone", ["the spawned process", "the coordinator"])
def test_one_that_never_comes_counts_as_started(gone: str) -> None:
    view = View.first(3, 0, starts=2).without([1]).spawning()
    view = view.without_spawned() if gone == "the spawned process" else view.without([0])
    assert view.spawned is None
    assert view.lacks_a_worker
    view = view.spawning()
    assert (view.spawned, view.starts) == (4, 0)
    assert not view.without_spawned().lacks_a_worker


def test_more_places_need_somebody_who_could_take_them() -> None:
    assert View.first(2, 0).enlarged(1).slots == 2
    view = View.first(2, 0, starts=1).enlarged(1)
    assert (view.slots, view.workers, view.lacks_a_worker) == (3, (0, 1), True)


@given(launches(), st.integers(0, 3), st.booleans())
def test_who_is_asked_for_comes_in_any_case_and_takes_no_start_from_the_others(
    launch: tuple[int, int], starts: int, more: bool
) -> None:
    ranks, spares = launch
    view = View.first(ranks, spares, starts).enlarged(more, requested=True)
    others = int(more and spares + starts > 0)
    assert view.slots == ranks - spares + others + 1
    assert len(view.workers) == ranks - spares + min(spares, more + 1)
    assert view.starts == starts + (spares <= more)
    assert view.lacks_a_worker == (spares < others + 1)


def test_should_it_not_come_its_place_goes_with_it_and_nobody_elses() -> None:
    view = View.first(3, 0, starts=1).enlarged(0, requested=True).spawning()
    assert (view.slots, view.spawned, view.starts) == (4, 3, 1)
    for after in (view.without_spawned(), view.without([0])):
        assert (after.slots, after.starts) == (3, 1)
        assert after.lacks_a_worker == (len(after.workers) < 3)
        assert after.without_spawned().slots == 3
    joined = view.with_spawned().without([])
    assert (joined.workers, joined.slots) == ((0, 1, 2, 3), 4)
    later = joined.without([1]).spawning().without_spawned()
    assert later.slots == 4, "that one was not asked for"
