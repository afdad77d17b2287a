"""Which backup to go back to, for every pattern of survivors and for interrupted exchanges."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farandole.recovery.buddies import choose, gone

Kept = tuple[int, int, list[int]]  # of one backup: its step, its number of workers, whose parts
SIZES = range(1, 7)


def kept(slot: int, slots: int, step: int) -> Kept:
    """Return a worker's parts of a backup: its own first, then its ward's."""
    return step, slots, [slot] if slots == 1 else [slot, (slot - 1) % slots]


def survivors(slots: int) -> Iterator[tuple[int, ...]]:
    """Yield every possible set of survivors, at least one."""
    for count in range(1, slots + 1):
        yield from combinations(range(slots), count)


def pair_has_died(alive: Collection[int], slots: int) -> bool:
    """Return whether some worker and its buddy have both died; a single worker is its own buddy."""
    return any(slot not in alive and (slot + 1) % slots not in alive for slot in range(slots))


def is_right(found: tuple[int, int, dict[int, int]], held: list[list[Kept]]) -> bool:
    """Return whether every part is named once, and its named worker has it."""
    step, slots, holders = found
    return sorted(holders) == list(range(slots)) and all(
        any((step, slots) == each[:2] and slot in each[2] for each in held[worker]) for slot, worker in holders.items()
    )


@pytest.mark.parametrize("slots", SIZES)
def test_a_backup_is_whole_unless_a_worker_and_its_buddy_have_died(slots: int) -> None:
    for alive in survivors(slots):
        held = [[kept(slot, slots, 20)] for slot in alive]
        found = choose(held)
        assert (found is None) == pair_has_died(alive, slots), alive
        if found is not None:
            assert found[:2] == (20, slots)
            assert is_right(found, held)


@pytest.mark.parametrize("slots", SIZES)
def test_each_survivors_own_part_comes_from_itself_and_a_dead_ones_from_its_buddy(slots: int) -> None:
    for alive in survivors(slots):
        if pair_has_died(alive, slots):
            continue
        found = choose([[kept(slot, slots, 20)] for slot in alive])
        assert found is not None
        for slot, worker in found[2].items():
            assert alive[worker] == (slot if slot in alive else (slot + 1) % slots)


@pytest.mark.parametrize("slots", SIZES)
def test_of_two_whole_backups_the_newer_one_is_taken(slots: int) -> None:
    for alive in survivors(slots):
        found = choose([[kept(slot, slots, step) for step in (20, 25)] for slot in alive])
        assert (found is None) == pair_has_died(alive, slots)
        assert found is None or found[0] == 25


@pytest.mark.parametrize("slots", SIZES)
def test_an_exchange_that_was_interrupted_falls_back_to_the_backup_before(slots: int) -> None:
    """Some of the survivors have the new backup already, and the others not; all have the old one."""
    for alive in survivors(slots):
        for done in [(), *survivors(slots)]:
            if not set(done) <= set(alive):
                continue
            held = [[kept(slot, slots, step) for step in ((20, 25) if slot in done else (15, 20))] for slot in alive]
            found = choose(held)
            if not pair_has_died(done, slots):
                assert found is not None
                assert found[0] == 25, "those who have it have all of it"
            elif not pair_has_died(alive, slots):
                assert found is not None
                assert found[0] == 20
            else:
                assert found is None
            assert found is None or is_right(found, held)


def test_a_backup_of_a_larger_group_counts_only_with_all_its_parts() -> None:
    """Four workers saved at 20; worker 1 died, and the three left were about to save at 20 in their new group."""
    before = [kept(slot, 4, 20) for slot in (0, 2, 3)]
    assert choose([[each] for each in before]) == (20, 4, {0: 0, 1: 1, 2: 1, 3: 2})
    after = [[each, kept(slot, 3, 20)] for slot, each in enumerate(before)]
    # Worker 2, the second of the three, dies now. Only it still had the part of worker 1.
    found = choose([after[0], after[2]])
    assert found == (20, 3, {0: 0, 1: 1, 2: 1})


def test_before_the_smaller_group_has_saved_a_second_death_may_be_one_too_many() -> None:
    assert choose([[kept(slot, 4, 20)] for slot in (0, 3)]) is None
    assert choose([[kept(slot, 4, 20)] for slot in (2, 3)]) is None, "worker 0 and its buddy 1"
    assert choose([[kept(slot, 4, 20)] for slot in (0, 2)]) == (20, 4, {0: 0, 1: 1, 2: 1, 3: 0})


def test_a_spare_has_nothing_yet_and_takes_nothing_away() -> None:
    """The spare is in the slot of worker 1, so those that follow have higher numbers."""
    held = [[kept(0, 3, 20)], [], [kept(2, 3, 20)]]
    assert choose(held) == (20, 3, {0: 0, 1: 2, 2: 2})


@pytest.mark.parametrize("held", [[], [[]], [[], [], []]])
def test_without_any_backup_there_is_none(held: list[list[Kept]]) -> None:
    assert choose(held) is None


@pytest.mark.parametrize("slots", SIZES)
def test_what_is_gone_are_the_parts_of_those_who_died_with_their_buddies(slots: int) -> None:
    """Also when some survivors have begun a newer backup."""
    for alive in survivors(slots):
        expected = [slot for slot in range(slots) if slot not in alive and (slot + 1) % slots not in alive]
        for ahead in [(), alive[:1]]:
            held = [[kept(slot, slots, 20), *([kept(slot, slots, 25)] if slot in ahead else [])] for slot in alive]
            assert gone(held) == expected


@pytest.mark.parametrize("held", [[], [[]], [[], []]])
def test_without_any_backup_it_is_not_known_what_is_gone(held: list[list[Kept]]) -> None:
    assert gone(held) == []


@st.composite
def holdings(draw: st.DrawFn) -> list[list[Kept]]:
    """Any backups of any groups, kept by any workers."""
    backup: Callable[[int], st.SearchStrategy[Kept]] = lambda slots: st.builds(  # noqa: E731
        kept, st.integers(0, slots - 1), st.just(slots), st.sampled_from([20, 25, 30])
    )
    return draw(st.lists(st.lists(st.integers(1, 4).flatmap(backup), max_size=2), max_size=6))


@given(holdings())
def test_what_is_chosen_is_whole_and_nothing_newer_is(held: list[list[Kept]]) -> None:
    def whole(step: int, slots: int) -> bool:
        parts = {part for each in held for key in each if key[:2] == (step, slots) for part in key[2]}
        return parts == set(range(slots))

    keys = {each[:2] for generations in held for each in generations}
    found = choose(held)
    if found is None:
        assert not any(whole(*key) for key in keys)
    else:
        assert is_right(found, held)
        assert not any(whole(*key) for key in keys if key > found[:2])
