"""Which clients take part in federated learning, and on which ranks they are."""

from __future__ import annotations

import numpy as np
import pytest

from farandole.errors import UsageError
from farandole.federated.clients import host, participants, possessions, survivors

CLASSES = np.arange(1000) % 4


@pytest.mark.parametrize("clients", [0, 1001])
def test_no_clients_and_more_than_samples_are_refused(clients: int) -> None:
    with pytest.raises(UsageError, match=f"--clients {clients}: must be from 1 to the 1000 training samples"):
        possessions(CLASSES, clients, 1.0, seed=0)


@pytest.mark.parametrize("clients", [1, 10, 1000])
def test_each_sample_belongs_to_one_client(clients: int) -> None:
    parts = possessions(CLASSES, clients, 1.0, seed=0)
    assert len(parts) == clients
    assert min(map(len, parts)) >= 1
    assert sorted(np.concatenate(parts)) == list(range(1000))


def test_clients_have_kinds_of_their_own_the_more_the_smaller_the_concentration() -> None:
    def largest_share(concentration: float, seed: int = 0) -> float:
        """Return the share of a client's most frequent class, mean over all clients."""
        counts = [np.bincount(CLASSES[rows]) for rows in possessions(CLASSES, 10, concentration, seed)]
        return float(np.mean([each.max() / each.sum() for each in counts]))

    assert largest_share(0.05) > 0.8
    assert largest_share(1000.0) < 0.4
    assert largest_share(0.5) != largest_share(0.5, seed=1)


def test_another_seed_or_round_draws_others() -> None:
    drawn = [participants(number, 100, 10, seed) for number in (0, 1) for seed in (0, 1)]
    lasting = [survivors(number, list(range(100)), 0.5, seed) for number in (0, 1) for seed in (0, 1)]
    assert len({tuple(each) for each in drawn}) == len({tuple(each) for each in lasting}) == 4
    assert drawn[0] == participants(0, 100, 10, 0)
    assert lasting[0] == survivors(0, list(range(100)), 0.5, 0)


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
