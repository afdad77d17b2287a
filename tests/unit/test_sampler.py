"""The sampler: every sample once per epoch, in an order that can be resumed."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from farandole.data.sampler import EpochSampler, batch_size, check_filled, steps_per_epoch
from farandole.data.shares import proportional_shares
from farandole.errors import UsageError


@given(st.integers(1, 300), st.integers(1, 40), st.integers(0, 3))
def test_an_epoch_uses_every_sample_exactly_once(share: int, steps: int, seed: int) -> None:
    sampler = EpochSampler(share, steps, seed, rank=1)
    epochs = []
    for _ in range(2):
        batches = [next(sampler) for _ in range(steps)]
        assert [len(batch) for batch in batches] == [batch_size(share, steps, step) for step in range(steps)]
        epochs.append(np.concatenate(batches))
        assert sorted(epochs[-1]) == list(range(share))
    if share > 10:
        assert not np.array_equal(*epochs), "each epoch has an order of its own"


@given(st.integers(1, 100), st.integers(1, 20), st.integers(0, 50))
def test_a_restored_sampler_goes_on_exactly(share: int, steps: int, taken: int) -> None:
    sampler = EpochSampler(share, steps, seed=3, rank=2)
    for _ in range(taken):
        next(sampler)
    restored = EpochSampler(share, steps, seed=0, rank=0)
    restored.restore(sampler.state())
    for _ in range(2 * steps):
        assert np.array_equal(next(sampler), next(restored))


def test_ranks_and_seeds_shuffle_differently() -> None:
    orders = [next(EpochSampler(100, 1, seed, rank)).tolist() for seed in (0, 1) for rank in (0, 1)]
    assert len({tuple(order) for order in orders}) == 4


def test_all_ranks_take_the_same_number_of_steps_whatever_their_shares() -> None:
    steps = steps_per_epoch(samples=103, batch=16)
    assert steps == 7
    for share in proportional_shares(103, [5, 1, 1]):
        assert sum(batch_size(share, steps, step) for step in range(steps)) == share


@pytest.mark.parametrize("batch", [0, 11])
def test_impossible_batches_are_refused(batch: int) -> None:
    with pytest.raises(UsageError, match="--batch"):
        steps_per_epoch(samples=10, batch=batch)


def test_batches_of_one_and_of_all_are_possible() -> None:
    assert [steps_per_epoch(samples=10, batch=batch) for batch in (1, 9, 10)] == [10, 2, 1]


@given(st.lists(st.integers(1, 12), min_size=1, max_size=7), st.integers(1, 20), st.integers(1, 60))
def test_a_batch_is_refused_exactly_if_a_step_would_be_empty(shares: list[int], batch: int, steps: int) -> None:
    assume(batch <= sum(shares))
    epoch = steps_per_epoch(sum(shares), batch)
    empty = [step for step in range(steps) if not any(batch_size(share, epoch, step) for share in shares)]
    refusal = f"--batch {batch}: {len(shares)} ranks share .* none left for step {empty[0]}; " if empty else ""
    with pytest.raises(UsageError, match=refusal) if empty else nullcontext():
        check_filled(shares, batch, steps)
    if empty:
        check_filled(shares, len(shares), steps)  # what the refusal recommends
