"""Shares by a Dirichlet distribution: complete, as unlike as requested, reproducible."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from farandole.data.label_skew import divide

CLASSES = np.random.default_rng(0).integers(10, size=1000)


def skew(concentration: float) -> float:
    """Return the mean distance of the shares' class mixtures from the overall one: 0 alike, near 2 one class each."""
    everybodys = np.bincount(CLASSES, minlength=10) / len(CLASSES)
    shares = divide(CLASSES, 20, concentration, seed=1)
    return float(
        np.mean([np.abs(np.bincount(CLASSES[rows], minlength=10) / len(rows) - everybodys).sum() for rows in shares])
    )


@pytest.mark.parametrize("concentration", [0.01, 0.5, 100, inf])
@pytest.mark.parametrize("owners", [1, 2, 7, 300, 1000])
def test_every_sample_has_one_owner_and_every_owner_a_sample(owners: int, concentration: float) -> None:
    shares = divide(CLASSES, owners, concentration, seed=3)
    assert len(shares) == owners
    assert min(map(len, shares)) >= 1
    assert sorted(np.concatenate(shares).tolist()) == list(range(1000))


def test_a_smaller_concentration_makes_shares_less_alike() -> None:
    assert skew(0.05) > 1.2 > skew(1) > 0.4 > skew(100)
    assert skew(inf) < 0.5  # 50 samples each differ by chance


def test_the_same_seed_divides_alike_and_another_one_does_not() -> None:
    one, same, other = (divide(CLASSES, 5, 1.0, seed) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for a, b in zip(one, same, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
