"""Schedules executed on vectors, by ranks that are threads: the result is the checker's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from farandole.collectives import executor
from farandole.collectives.checker import execute
from farandole.collectives.hierarchical import hierarchical
from farandole.collectives.ring import RING, segmented
from farandole.collectives.schedules import SCHEDULES
from farandole.collectives.steps import Exchange, Schedule, Together, chunk_slices
from tests.unit.ranks_in_threads import Group, Rank

Vector = np.ndarray[Any, Any]


def vectors(size: int, length: int, kind: str = "float32") -> list[Vector]:
    """One per rank, of small whole numbers, whose sums are exact in every type and any order."""
    return [np.random.default_rng([rank, length]).integers(0, 100, length).astype(kind) for rank in range(size)]


def carried_out(schedule: Schedule, starts: list[Vector]) -> list[Vector]:
    """Return every rank's vector after `schedule`."""

    def program(rank: Rank) -> Vector:
        buffer = starts[rank.rank].copy()
        executor.run(schedule, rank, buffer)  # type: ignore[arg-type]
        return buffer

    return Group(len(starts)).run(program)


def check(schedule: Schedule, starts: list[Vector]) -> None:
    """Assert that each rank's chunks are the sums of those contributions that the checker finds in them."""
    size, length = len(starts), len(starts[0])
    held = execute(schedule, size).held
    parts = chunk_slices(length, schedule.chunks(size))
    for rank, found in enumerate(carried_out(schedule, starts)):
        for part, contributions in zip(parts, held[rank], strict=True):
            expected = sum(
                (times * starts[of][part] for of, times in contributions.items()), np.zeros_like(found[part])
            )
            assert found[part].tolist() == expected.tolist(), (schedule.name, rank, part)
        assert found.dtype == starts[0].dtype


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("size", [1, 2, 3, 4, 6])
def test_a_schedule_leaves_the_sums_that_the_checker_finds(name: str, size: int) -> None:
    for length in (0, 1, size + 1, 50):
        check(SCHEDULES[name][0], vectors(size, length))


@pytest.mark.parametrize("kind", ["float16", "float64", "int32"])
def test_a_schedule_adds_numbers_of_every_type(kind: str) -> None:
    for schedule in (RING, segmented(3), hierarchical(2)):
        check(schedule, vectors(4, 21, kind))


def swap_two(rank: int, size: int) -> Any:
    """Two ranks send each other two chunks in one step: one is added to the partner's, the other replaces it."""
    to, own = 1 - rank, 2 * rank
    yield Together((Exchange(own, to, 2 - own, to, reduce=True), Exchange(own + 1, to, 3 - own, to)))


def test_the_messages_of_one_step_are_added_and_taken_each_by_its_own_rule() -> None:
    schedule = Schedule("swap", swap_two, chunks=lambda size: 4)
    for length in (4, 7):
        check(schedule, vectors(2, length))


@pytest.mark.parametrize("wrong", [np.zeros((2, 3)), np.zeros(6)[::2]], ids=["matrix", "with gaps"])
def test_only_one_contiguous_vector_is_accepted(wrong: Vector) -> None:
    with pytest.raises(ValueError, match=r"one contiguous vector is needed, not shape .*: give buffer.reshape\(-1\)"):
        executor.run(RING, Rank(Group(2), 0), wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["run_segmented_ring", "run_double_binary_tree"])
@pytest.mark.parametrize(("length", "segments"), [(0, 1), (1, 1), (32, 1), (33, 2), (64, 2), (65, 3)])
def test_a_segmented_ring_and_two_trees_send_messages_of_a_segment_at_most(
    length: int, segments: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On two ranks, with segments of 64 bytes: 16 entries of a chunk of the ring, or of the half of a tree."""
    monkeypatch.setattr(executor, "SEGMENT", 64)
    starts = vectors(2, length)

    def program(rank: Rank) -> int:
        buffer = starts[rank.rank].copy()
        getattr(executor, name)(rank, buffer)
        assert buffer.tolist() == sum(starts).tolist()
        return rank.messages_sent

    assert Group(2).run(program) == [2 * segments] * 2
