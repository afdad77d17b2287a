"""The data sets are the real ones, and their splits disjoint."""

from __future__ import annotations

import numpy as np
import pytest

from farandole.data import datasets
from farandole.errors import UsageError


@pytest.mark.parametrize(("name", "count", "side"), [("digits", 1797, 8), ("mnist5k", 5000, 28)])
def test_data_sets_are_the_real_ones(name: str, count: int, side: int) -> None:
    dataset = datasets.load(name)
    assert dataset.inputs.shape == (count, 1, side, side)
    assert dataset.inputs.dtype == np.float32
    assert dataset.inputs.min() == 0
    assert dataset.inputs.max() == 1
    assert sorted(set(dataset.targets.tolist())) == list(range(10))


def test_digits_are_those_of_scikit_learn() -> None:
    from sklearn.datasets import load_digits

    theirs, ours = load_digits(), datasets.load("digits")
    assert np.array_equal(ours.inputs.reshape(-1, 64) * 16, theirs.data)
    assert np.array_equal(ours.targets, theirs.target)


def test_splits_are_disjoint_complete_and_repeatable() -> None:
    numbers = np.arange(1000)
    dataset = datasets.Dataset(numbers.astype(np.float32).reshape(-1, 1, 1, 1), numbers)
    splits = datasets.split(dataset, seed=5)
    assert [len(part) for part in splits] == [800, 100, 100]
    assert sorted(np.concatenate([part.targets for part in splits])) == numbers.tolist()
    assert np.array_equal(splits.test.targets, datasets.split(dataset, seed=5).test.targets)
    assert not np.array_equal(splits.test.targets, datasets.split(dataset, seed=6).test.targets)


def test_unknown_data_set_is_refused() -> None:
    with pytest.raises(UsageError, match="digits, mnist5k"):
        datasets.load("imagenet")
