"""Who takes part in federated learning, and where clients live."""

from __future__ import annotations

import numpy as np
import pytest

from farandole.errors import UsageError
from farandole.federated.clients import host, participants, possessions, survivors


def test_more_clients_than_samples_are_refused() -> None:
    with pytest.raises(UsageError, match="--clients 1001: must be from 1 to the 1000 training samples"):
        possessions(np.zeros(1000, np.int64), 1001, 1.0, seed=0)


def test_all_clients_take_part_equally_often_in_the_long_run() -> None:
    rounds = [participants(number, 20, 5, seed=0) for number in range(2000)]
    assert all(len(set(each)) == 5 and each == sorted(each) for each in rounds)
    counts = np.bincount(np.concatenate(rounds), minlength=20)
    # Each count is binomial (2000, 1/4): its deviation is 19.4, and 5 of them are passed once in 87,000 runs of 20.
    assert np.abs(counts - 500).max() < 5 * 19.4


def test_the_lost_are_lost_with_the_probability_given() -> None:
    left = [len(survivors(number, list(range(10)), 0.3, seed=0)) for number in range(1000)]
    assert abs(sum(left) / 10_000 - 0.7) < 5 * (0.3 * 0.7 / 10_000) ** 0.5
    assert survivors(0, [3, 5], 0.0, seed=0) == [3, 5]


def test_clients_live_on_the_ranks_in_turn() -> None:
    assert [host(client, 3) for client in range(7)] == [0, 1, 2, 0, 1, 2, 0]
