"""The draw of random kills: the requested rate, any moment, any rank, and the same on every rank."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections import Counter
from itertools import islice, pairwise

import numpy as np
import pytest

from farandole.errors import UsageError
from farandole.runtime.chaos import Chaos

DRAWS = 20_000
# With other seeds a correct draw would fail a test in one case of a thousand or less.
SIGMAS = 3.29


def gaps(chaos: Chaos, ranks: int = 4) -> np.ndarray:
    times = [0.0, *(when for when, _ in islice(chaos.deaths(ranks), DRAWS))]
    return np.diff(times)


@pytest.mark.parametrize("mtbf_s", [0.5, 20.0])
def test_the_mean_time_between_deaths_is_the_one_asked_for(mtbf_s: float) -> None:
    assert gaps(Chaos(mtbf_s, 7)).mean() == pytest.approx(mtbf_s, rel=SIGMAS / math.sqrt(DRAWS))


def test_the_times_between_are_exponentially_distributed() -> None:
    """Kolmogorov and Smirnov: the greatest distance to the distribution, for DRAWS values below 1.95/√DRAWS."""
    found = np.sort(gaps(Chaos(20.0, 7)))
    expected = 1 - np.exp(-found / 20)
    steps = np.arange(DRAWS + 1) / DRAWS
    distance = max((steps[1:] - expected).max(), (expected - steps[:-1]).max())
    assert 0 < distance < 1.95 / math.sqrt(DRAWS)


def test_everybody_is_struck_as_often() -> None:
    ranks = 5
    counts = Counter(rank for _, rank in islice(Chaos(1.0, 7).deaths(ranks), DRAWS))
    assert set(counts) == set(range(ranks))
    chi_square = sum((count - DRAWS / ranks) ** 2 for count in counts.values()) / (DRAWS / ranks)
    assert chi_square < 18.47, "99.9 % of the distribution with 4 degrees of freedom"


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_one_rank_lives_as_many_times_longer_as_there_are_ranks(ranks: int) -> None:
    starts = 4000
    lives = [Chaos(3.0, 7).death_s(0, ranks, start) for start in range(starts)]
    assert np.mean(lives) == pytest.approx(3.0 * ranks, rel=SIGMAS / math.sqrt(starts))


def test_all_ranks_agree_on_who_dies_when_and_each_start_draws_anew() -> None:
    """Each in a separate process, with another hash seed."""
    program = """
import json, sys
from itertools import islice
from farandole.runtime.chaos import Chaos
rank, ranks, start = map(int, sys.argv[1:])
chaos = Chaos.parse("mtbf=20s,seed=7")
print(json.dumps([chaos.death_s(rank, ranks, start), list(islice(chaos.deaths(ranks, start), 30))]))
"""
    ranks = 4
    found = {}
    for rank, start in [*((rank, 0) for rank in range(ranks)), (0, 1)]:
        command = [sys.executable, "-c", program, str(rank), str(ranks), str(start)]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, env=os.environ | {"PYTHONHASHSEED": str(rank + 1)}
        )
        assert done.returncode == 0, done.stderr
        found[rank, start] = json.loads(done.stdout)
    everybodys = found[0, 0][1]
    assert all(found[rank, 0][1] == everybodys for rank in range(ranks))
    for rank in range(ranks):
        assert found[rank, 0][0] == next(when for when, struck in everybodys if struck == rank)
    assert all(a < b for (a, _), (b, _) in pairwise(everybodys))
    assert {when for when, _ in found[0, 1][1]}.isdisjoint(when for when, _ in everybodys)
    other_seed = [when for when, _ in islice(Chaos(20.0, 8).deaths(ranks), 30)]
    assert set(other_seed).isdisjoint(when for when, _ in everybodys)


@pytest.mark.parametrize(
    ("text", "chaos"),
    [
        ("mtbf=20s,seed=7", Chaos(20.0, 7)),
        ("mtbf=20,seed=7", Chaos(20.0, 7)),
        ("seed=3,mtbf=0.5s", Chaos(0.5, 3)),
        ("mtbf=1e3", Chaos(1000.0, 0)),
    ],
)
def test_what_is_accepted(text: str, chaos: Chaos) -> None:
    assert Chaos.parse(text) == chaos
    assert Chaos.parse(str(chaos)) == chaos


@pytest.mark.parametrize(
    "text",
    ["", "20s", "seed=7", "mtbf=0", "mtbf=-1s", "mtbf=nan", "mtbf=inf", "mtbf=2m", "mtbf=20s,seed=x", "mtbf=2,mtbf=3",
     "mtbf=20s,seed=7.5", "mtbf=20s,rank=2", "mtbf=s", "mtbf=1,seed=-1"],
)  # fmt: skip
def test_what_is_not_is_refused_with_what_would_be(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        Chaos.parse(text)
    assert str(refused.value) == (
        f"{text!r} does not fit: write it as --chaos mtbf=20s,seed=7 (seconds, above 0; a whole number)"
    )


@pytest.mark.parametrize("mtbf_s", [1e-300, 1e300])
def test_the_shortest_and_the_longest_life_have_an_end(mtbf_s: float) -> None:
    assert Chaos(mtbf_s, 7).death_s(0, 3) >= 0
