"""The data sets are the real ones, their shapes are known before loading, and their splits are disjoint."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

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


@pytest.mark.parametrize("name", datasets.NAMES)
def test_shape_and_classes_are_known_without_loading(name: str) -> None:
    dataset = datasets.load(name)
    assert dataset.inputs.shape[1:] == datasets.shape(name)
    assert dataset.targets.min() >= 0
    assert dataset.targets.max() < datasets.classes(name)


def test_loading_needs_no_torch() -> None:
    program = "import sys; from farandole.data import datasets; datasets.load('pydoc'); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "False\n"


def test_splits_are_disjoint_complete_and_repeatable() -> None:
    numbers = np.arange(1000)
    dataset = datasets.Dataset(numbers.astype(np.float32).reshape(-1, 1, 1, 1), numbers)
    splits = datasets.split(dataset, seed=5)
    assert [len(part) for part in splits] == [800, 100, 100]
    assert sorted(np.concatenate([part.targets for part in splits])) == numbers.tolist()
    assert np.array_equal(splits.test.targets, datasets.split(dataset, seed=5).test.targets)
    assert not np.array_equal(splits.test.targets, datasets.split(dataset, seed=6).test.targets)


@pytest.mark.parametrize("ask", [datasets.load, datasets.shape, datasets.classes])
def test_unknown_data_set_is_refused(ask: Callable[[str], object]) -> None:
    with pytest.raises(UsageError, match="digits, mnist5k, pydoc"):
        ask("imagenet")
