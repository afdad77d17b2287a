"""Which backup to go back to: of every pattern of survivors, and of exchanges that were interrupted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farandole.recovery.buddies import choose, gone

Kept = tuple[int, int, list[int]]  # of one backup: its step, how many workers there were, whose parts
SIZES = range(1, 7)


def kept(place: int, places: int, step: int) -> Kept:
    """What a worker keeps of a backup: its own part first, then its ward's."""
    return step, places, [place] if places == 1 else [place, (place - 1) % places]


def survivors(places: int) -> Iterator[tuple[int, ...]]:
    """Every set of workers that may be left, at least one."""
    for count in range(1, places + 1):
        yield from combinations(range(places), count)


def pair_has_died(alive: Collection[int], places: int) -> bool:
    """Whether some worker and its buddy are both gone; one that is alone is its own buddy."""
    return any(place not in alive and (place + 1) % places not in alive for place in range(places))


def is_right(found: tuple[int, int, dict[int, int]], held: list[list[Kept]]) -> bool:
    """Whether every part is named once, and is with the worker that is named for it."""
    step, places, holders = found
    return sorted(holders) == list(range(places)) and all(
        any((step, places) == each[:2] and place in each[2] for each in held[worker])
        for place, worker in holders.items()
    )


@pytest.mark.parametrize("places", SIZES)
def test_a_backup_is_whole_unless_a_worker_and_its_buddy_have_died(places: int) -> None:
    for alive in survivors(places):
        held = [[kept(place, places, 20)] for place in alive]
        found = choose(held)
        assert (found is None) == pair_has_died(alive, places), alive
        if found is not None:
            assert found[:2] == (20, places)
            assert is_right(found, held)


@pytest.mark.parametrize("places", SIZES)
def test_each_survivors_own_part_comes_from_itself_and_a_dead_ones_from_its_buddy(places: int) -> None:
    for alive in survivors(places):
        if pair_has_died(alive, places):
            continue
        found = choose([[kept(place, places, 20)] for place in alive])
        assert found is not None
        for place, worker in found[2].items():
            assert alive[worker] == (place if place in alive else (place + 1) % places)


@pytest.mark.parametrize("places", SIZES)
def test_of_two_whole_backups_the_newer_one_is_taken(places: int) -> None:
    for alive in survivors(places):
        found = choose([[kept(place, places, step) for step in (20, 25)] for place in alive])
        assert (found is None) == pair_has_died(alive, places)
        assert found is None or found[0] == 25


@pytest.mark.parametrize("places", SIZES)
def test_an_exchange_that_was_interrupted_falls_back_to_the_backup_before(places: int) -> None:
    """Some of the survivors have the new backup already, and the others not; all have the old one."""
    for alive in survivors(places):
        for done in [(), *survivors(places)]:
            if not set(done) <= set(alive):
                continue
            held = [
                [kept(place, places, step) for step in ((20, 25) if place in done else (15, 20))] for place in alive
            ]
            found = choose(held)
            if not pair_has_died(done, places):
                assert found is not None
                assert found[0] == 25, "those who have it have all of it"
            elif not pair_has_died(alive, places):
                assert found is not None
                assert found[0] == 20
            else:
                assert found is None
            assert found is None or is_right(found, held)


def test_a_backup_of_a_larger_group_counts_only_with_all_its_parts() -> None:
    """Four workers saved at 20; worker 1 died, and the three left were about to save at 20 in their new group."""
    before = [kept(place, 4, 20) for place in (0, 2, 3)]
    assert choose([[each] for each in before]) == (20, 4, {0: 0, 1: 1, 2: 1, 3: 2})
    after = [[each, kept(place, 3, 20)] for place, each in enumerate(before)]
    # Worker 2, the second of the three, dies now. It was the only one left with the part of worker 1.
    found = choose([after[0], after[2]])
    assert found == (20, 3, {0: 0, 1: 1, 2: 1})


def test_before_the_smaller_group_has_saved_a_second_death_may_be_one_too_many() -> None:
    assert choose([[kept(place, 4, 20)] for place in (0, 3)]) is None
    assert choose([[kept(place, 4, 20)] for place in (2, 3)]) is None, "worker 0 and its buddy 1"
    assert choose([[kept(place, 4, 20)] for place in (0, 2)]) == (20, 4, {0: 0, 1: 1, 2: 1, 3: 0})


def test_a_spare_has_nothing_yet_and_takes_nothing_away() -> None:
    """It stands in the place of worker 1, so those that follow have higher numbers."""
    held = [[kept(0, 3, 20)], [], [kept(2, 3, 20)]]
    assert choose(held) == (20, 3, {0: 0, 1: 2, 2: 2})


@pytest.mark.parametrize("held", [[], [[]], [[], [], []]])
def test_without_any_backup_there_is_none(held: list[list[Kept]]) -> None:
    assert choose(held) is None


@pytest.mark.parametrize("places", SIZES)
def test_what_is_gone_are_the_parts_of_those_who_died_with_their_buddies(places: int) -> None:
    """Whether or not some of those left have begun a newer backup."""
    for alive in survivors(places):
        expected = [place for place in range(places) if place not in alive and (place + 1) % places not in alive]
        for ahead in [(), alive[:1]]:
            held = [
                [kept(place, places, 20), *([kept(place, places, 25)] if place in ahead else [])] for place in alive
            ]
            assert gone(held) == expected


@pytest.mark.parametrize("held", [[], [[]], [[], []]])
def test_without_any_backup_it_is_not_known_what_is_gone(held: list[list[Kept]]) -> None:
    assert gone(held) == []


@st.composite
def holdings(draw: st.DrawFn) -> list[list[Kept]]:
    """Any backups of any groups, kept by any workers."""
    backup: Callable[[int], st.SearchStrategy[Kept]] = lambda places: st.builds(  # noqa: E731
        kept, st.integers(0, places - 1), st.just(places), st.sampled_from([20, 25, 30])
    )
    return draw(st.lists(st.lists(st.integers(1, 4).flatmap(backup), max_size=2), max_size=6))


@given(holdings())
def test_what_is_chosen_is_whole_and_nothing_newer_is(held: list[list[Kept]]) -> None:
    def whole(step: int, places: int) -> bool:
        parts = {part for each in held for key in each if key[:2] == (step, places) for part in key[2]}
        return parts == set(range(places))

    keys = {each[:2] for generations in held for each in generations}
    found = choose(held)
    if found is None:
        assert not any(whole(*key) for key in keys)
    else:
        assert is_right(found, held)
        assert not any(whole(*key) for key in keys if key > found[:2])
