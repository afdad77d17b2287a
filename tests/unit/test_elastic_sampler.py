"""The elastic sampler: every sample once per epoch, for any workers, and from any step."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farandole.data.elastic_sampler import ElasticSampler, Rows, divide
from farandole.data.sampler import EpochSampler, steps_per_epoch
from farandole.data.shares import equal_shares, proportional_shares
from farandole.errors import UsageError

SHARDS = st.sampled_from([1, 2, 3, 4, 7])


@st.composite
def trainings(draw: st.DrawFn) -> tuple[list[int], int, int]:
    """Draw the shards' sizes, equal or not, the batch, and the seed."""
    samples, shards = draw(st.integers(10, 120)), draw(SHARDS)
    speeds = draw(st.none() | st.lists(st.floats(0.1, 10), min_size=shards, max_size=shards))
    shares = proportional_shares(samples, speeds) if speeds else equal_shares(samples, shards)
    return shares, draw(st.integers(1, sum(shares))), draw(st.integers(0, 3))


def batches(training: tuple[list[int], int, int], steps: int) -> list[list[Rows]]:
    """Return the first steps' batches of an uninterrupted sampler."""
    sampler = ElasticSampler(*training)
    return [next(sampler) for _ in range(steps)]


def assert_equal(one: list[Rows], other: list[Rows]) -> None:
    assert [rows.tolist() for rows in one] == [rows.tolist() for rows in other]


@given(trainings(), st.data())
def test_every_sample_is_used_once_per_epoch_by_as_many_ranks_as_happen_to_be_there(
    training: tuple[list[int], int, int], data: st.DataObject
) -> None:
    shares, batch, _ = training
    sampler = ElasticSampler(*training)
    steps = steps_per_epoch(sum(shares), batch)
    for _ in range(2):
        used: list[int] = []
        for _ in range(steps):
            parts = next(sampler)
            ranks = data.draw(st.integers(1, 9))
            divided = divide(parts, ranks)
            assert len(divided) == ranks
            assert sorted(np.concatenate(divided)) == sorted(np.concatenate(parts))
            used += np.concatenate(divided).tolist()
        assert sorted(used) == list(range(sum(shares)))


@given(trainings(), st.lists(st.tuples(st.integers(1, 9), st.integers(0, 40), st.integers(0, 30)), max_size=6))
def test_every_sample_counts_once_per_epoch_however_often_training_goes_back(
    training: tuple[list[int], int, int], failures: list[tuple[int, int, int]]
) -> None:
    """Failures: a number of ranks, the steps that they take, and the steps that are then undone."""
    shares, batch, _ = training
    steps = 2 * steps_per_epoch(sum(shares), batch)
    used: dict[int, list[int]] = {}
    start = 0
    for ranks, further, back in [*failures, (5, steps, 0)]:
        sampler = ElasticSampler(*training)
        sampler.go_to(start)
        stop = min(start + further, steps)
        for step in range(start, stop):
            used[step] = np.concatenate(divide(next(sampler), ranks)).tolist()
        start = max(0, stop - back)
    assert sorted(used) == list(range(steps))
    samples = sorted(row for rows in used.values() for row in rows)
    assert samples == sorted([*range(sum(shares))] * 2)


@given(trainings(), st.lists(st.integers(0, 60), min_size=1, max_size=6))
def test_gone_to_a_step_it_goes_on_as_if_it_had_come_there(
    training: tuple[list[int], int, int], steps: list[int]
) -> None:
    fresh = batches(training, max(steps) + 3)
    sampler = ElasticSampler(*training)
    for step in steps:
        sampler.go_to(step)
        for following in range(step, step + 3):
            assert_equal(next(sampler), fresh[following])


@given(trainings())
def test_with_a_rank_for_every_shard_each_rank_takes_what_it_would_take_alone(
    training: tuple[list[int], int, int],
) -> None:
    shares, batch, seed = training
    steps = steps_per_epoch(sum(shares), batch)
    alone = [EpochSampler(share, steps, seed, rank) for rank, share in enumerate(shares)]
    for parts in batches(training, 2 * steps + 1):
        divided = divide(parts, len(shares))
        for rank, sampler in enumerate(alone):
            assert np.array_equal(divided[rank] - sum(shares[:rank]), next(sampler))


@given(trainings(), st.integers(1, 9))
def test_other_ranks_share_the_batch_equally(training: tuple[list[int], int, int], ranks: int) -> None:
    [parts] = batches(training, 1)
    divided = divide(parts, ranks)
    sizes = [len(rows) for rows in divided]
    assert sum(sizes) == sum(map(len, parts))
    if ranks != len(parts):
        assert max(sizes) - min(sizes) <= 1


def test_ranks_may_outnumber_the_samples() -> None:
    sampler = ElasticSampler([3, 2], batch=5, seed=0)
    divided = divide(next(sampler), 7)
    assert [len(rows) for rows in divided] == [1, 1, 1, 1, 1, 0, 0]
    assert sorted(np.concatenate(divided)) == [0, 1, 2, 3, 4]
    assert all(np.issubdtype(rows.dtype, np.integer) for rows in divided), "an empty part, too, can be used as rows"


def test_epochs_seeds_and_shards_have_orders_of_their_own() -> None:
    first, second = batches(([50, 50], 100, 0), 2)
    [other_seed] = batches(([50, 50], 100, 1), 1)
    orders = [*first, *second, *other_seed]
    assert len({tuple(rows % 50) for rows in orders}) == 6


@pytest.mark.parametrize("batch", [0, 11])
def test_impossible_batches_are_refused(batch: int) -> None:
    with pytest.raises(UsageError, match="--batch"):
        ElasticSampler([5, 5], batch, seed=0)
