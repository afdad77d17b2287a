"""Samples for workers that know only some classes: complete, disjoint, in each worker's own numbers."""

from __future__ import annotations

import numpy as np
import pytest

from farandole.data.datasets import Dataset
from farandole.parameter_server.labels import ABSENT, align, local_label_sets
from farandole.parameter_server.local_labels import DIGITS, by_worker, numbered


def samples(count: int = 500) -> Dataset:
    """Each has its own number as its only pixel."""
    targets = np.random.default_rng(0).integers(len(DIGITS), size=count)
    return Dataset(np.arange(count, dtype=np.float32).reshape(-1, 1, 1, 1), targets)


def test_numbers_follow_the_names_and_what_has_no_name_is_absent() -> None:
    assert numbered(np.array([3, 0, 3, 7]), ["zero", "three"]).tolist() == [1, 0, 1, ABSENT]


@pytest.mark.parametrize(("workers", "per_worker"), [(1, 10), (3, 4), (3, 6), (5, 2), (4, 10)])
def test_every_sample_goes_to_one_worker_that_knows_it(workers: int, per_worker: int) -> None:
    everything = samples()
    known = local_label_sets(DIGITS, workers, per_worker, seed=1)
    shards = by_worker(everything, known)
    numbers = np.concatenate([shard.inputs.ravel() for shard in shards])
    assert sorted(numbers.tolist()) == list(range(len(everything)))
    for shard, names in zip(shards, known, strict=True):
        digits = everything.targets[shard.inputs.ravel().astype(int)]
        assert [names[target] for target in shard.targets] == [DIGITS[digit] for digit in digits]


def test_a_class_that_two_know_is_shared_equally() -> None:
    everything = samples()
    shards = by_worker(everything, [DIGITS[:6], DIGITS[5:]])
    five = int((everything.targets == 5).sum())
    assert abs(int((shards[0].targets == 5).sum()) - int((shards[1].targets == 0).sum())) == five % 2


def test_aligned_targets_are_the_common_numbers() -> None:
    everything = samples()
    known = local_label_sets(DIGITS, 3, 5, seed=2)
    alignment = align(known)
    for shard, to_common in zip(by_worker(everything, known), alignment.to_common, strict=True):
        digits = everything.targets[shard.inputs.ravel().astype(int)]
        assert to_common[shard.targets].tolist() == numbered(digits, alignment.names).tolist()
