"""Collectives without MPI: right for every number of ranks, at the cost that the formula gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farandole.collectives.central import CENTRAL, ROOT
from farandole.collectives.checker import ScheduleError, check_all_reduce, execute
from farandole.collectives.ring import ALL_GATHER, REDUCE_SCATTER, RING
from farandole.collectives.steps import Exchange, Schedule, chunk_slices


@pytest.mark.parametrize("size", range(1, 65))
def test_ring_is_right_and_costs_2_p_minus_1_chunks(size: int) -> None:
    execution = check_all_reduce(RING, size)
    assert execution.steps == [2 * (size - 1)] * size
    assert execution.chunks_sent == [2 * (size - 1)] * size
    assert len(execution.rounds) == 2 * (size - 1), "all ranks work in every round"


@pytest.mark.parametrize("size", [*range(1, 18), 64])
def test_central_is_right_and_its_root_moves_everything(size: int) -> None:
    execution = check_all_reduce(CENTRAL, size)
    assert execution.chunks_sent[ROOT] == size - 1
    assert execution.chunks_sent[1:] == [1] * (size - 1)
    assert len(execution.rounds) == 2 * (size - 1), "the root talks to one rank at a time"


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 16])
def test_reduce_scatter_leaves_rank_r_the_sum_of_chunk_r_plus_1(size: int) -> None:
    held = execute(REDUCE_SCATTER, size).held
    for rank in range(size):
        assert held[rank][(rank + 1) % size] == Counter(range(size))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 16])
def test_all_gather_spreads_what_reduce_scatter_left(size: int) -> None:
    execution = execute(ALL_GATHER, size, start=execute(REDUCE_SCATTER, size).held)
    assert all(chunk == Counter(range(size)) for chunks in execution.held for chunk in chunks)


@pytest.mark.parametrize("size", [2, 5])
def test_ring_talks_to_neighbours_only(size: int) -> None:
    for rank in range(size):
        for step in RING.steps(rank, size):
            assert step.to == (rank + 1) % size
            assert step.source == (rank - 1) % size


def off_by_one(rank: int, size: int) -> Iterator[Exchange]:
    for step in RING.steps(rank, size):
        wrong = (step.recv + 1) % size if step.recv is not None else None
        yield Exchange(step.send, step.to, wrong, step.source, step.reduce)


def one_step_short(rank: int, size: int) -> Iterator[Exchange]:
    yield from list(RING.steps(rank, size))[:-1]


def adds_twice(rank: int, size: int) -> Iterator[Exchange]:
    for step in RING.steps(rank, size):
        yield Exchange(step.send, step.to, step.recv, step.source, reduce=True)


def send_first(rank: int, size: int) -> Iterator[Exchange]:
    for step in RING.steps(rank, size):
        yield Exchange(send=step.send, to=step.to)
        yield Exchange(recv=step.recv, source=step.source, reduce=step.reduce)


@pytest.mark.parametrize(
    ("steps", "complaint"),
    [
        (off_by_one, "wants chunk"),
        (one_step_short, "lacks the contributions"),
        (adds_twice, "too often"),
        (send_first, "deadlocks"),
    ],
)
def test_checker_finds_what_is_wrong(steps: object, complaint: str) -> None:
    schedule = Schedule("wrong", steps, chunks=lambda size: size)  # type: ignore[arg-type]
    with pytest.raises(ScheduleError, match=complaint):
        check_all_reduce(schedule, 4)


@given(length=st.integers(0, 10_000), chunks=st.integers(1, 64))
def test_chunks_cover_the_vector_and_differ_by_at_most_one(length: int, chunks: int) -> None:
    slices = chunk_slices(length, chunks)
    assert [row for part in slices for row in range(part.start, part.stop)] == list(range(length))
    sizes = [part.stop - part.start for part in slices]
    assert max(sizes) - min(sizes) <= 1
