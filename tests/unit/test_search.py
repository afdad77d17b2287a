"""Successive halving: its trials, and how long each continues."""

from __future__ import annotations

from collections import Counter
from math import log

import numpy as np
import pytest

from farandole.data_parallel.options import SearchOptions
from farandole.data_parallel.search import draw, rounds
from farandole.errors import UsageError


@pytest.mark.parametrize(
    ("trials", "steps", "expected"),
    [
        (1, 300, [(1, 300)]),
        (2, 300, [(2, 300)]),
        (3, 300, [(3, 150), (2, 300)]),
        (16, 300, [(16, 37), (8, 75), (4, 150), (2, 300)]),
        (9, 8, [(9, 1), (5, 2), (3, 4), (2, 8)]),
    ],
)
def test_rounds(trials: int, steps: int, expected: list[tuple[int, int]]) -> None:
    assert rounds(trials, steps) == expected


def test_it_costs_what_it_says() -> None:
    """(log₂N + 1)·T steps instead of N·T."""
    trials, steps = 64, 1024
    taken, before = 0, 0
    for size, until in rounds(trials, steps):
        taken, before = taken + size * (until - before), until
    assert taken == (log(trials, 2) + 1) * steps


def test_too_few_steps() -> None:
    with pytest.raises(UsageError, match="--steps 7: too few for 16 trials, halved 3 times: give 8 or more"):
        rounds(16, 7)


def test_trials_are_the_same_however_many_there_are_and_lie_where_they_should() -> None:
    few, many = (draw(SearchOptions(trials=count, lr=0.1, spread=10, widths=(8, 16))) for count in (3, 500))
    assert few == many[:3]
    rates = np.log10([trial.lr for trial in many])
    assert -2 <= rates.min() < -1.95
    assert -0.05 < rates.max() <= 0
    quarters = np.histogram(rates, bins=4, range=(-2, 0))[0]
    assert quarters.min() > 90, "even on a logarithmic scale"
    assert Counter(trial.hidden for trial in many)[8] == pytest.approx(250, abs=50)
    assert draw(SearchOptions(trials=3, seed=1)) != draw(SearchOptions(trials=3))


def test_a_width_that_the_model_cannot_have() -> None:
    with pytest.raises(UsageError, match="hidden 24"):
        draw(SearchOptions(data="pydoc", model="transformer", widths=(32, 24)))
