"""The share of a training's time left by failures: against formulas where they exist, and a count of the time."""

from __future__ import annotations

import json
from dataclasses import astuple, replace
from math import exp

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farandole.cli.goodput import GoodputOptions
from farandole.cli.goodput import goodput as command
from farandole.cost.goodput import Group, Recovery, goodput
from farandole.errors import UsageError
from farandole.recovery.interval import daly, expected_s

LONG_S = 4e7


@pytest.mark.parametrize(("checkpoint_s", "restart_s"), [(30.0, 600.0), (120.0, 60.0), (5.0, 3000.0)])
def test_restart_takes_what_dalys_model_expects(checkpoint_s: float, restart_s: float) -> None:
    workers, mtbf_s = 100, 720_000.0  # a failure every two hours
    every_s = daly(checkpoint_s, mtbf_s / workers)
    found = goodput(Recovery(restart_s, every_s, checkpoint_s, None), workers, mtbf_s, 3600.0, LONG_S, seed=1)
    expected = 1 / expected_s(1.0, every_s, checkpoint_s, restart_s, mtbf_s / workers)
    assert found.goodput == pytest.approx(expected, rel=0.015)
    assert found.missing == 0


def test_without_pauses_the_live_workers_work() -> None:
    """A worker lives for μ and is absent for r on average: μ/(μ + r) of the workers are present."""
    found = goodput(Recovery(0.0), 50, 9000.0, 1000.0, 4e6, seed=2)
    assert found.goodput == pytest.approx(0.9, abs=0.005)
    assert found.missing == pytest.approx(0.1, abs=0.005)
    assert found.pauses == found.repeated == found.saves == 0


def test_pauses_of_a_group_that_is_repaired_at_once() -> None:
    """A failure every m seconds of work, and a pause that failures restart: m(exp(p/m) − 1) each."""
    between_s, pause_s = 100.0, 60.0
    found = goodput(Recovery(pause_s, spares=None), 10, 10 * between_s, 0.0, 4e6, seed=3)
    paused_s = between_s * (exp(pause_s / between_s) - 1)
    assert found.goodput == pytest.approx(between_s / (between_s + paused_s), rel=0.01)


def test_islands_fail_alone() -> None:
    """So that each meets a failure as rarely as a training of its own size."""
    alone = goodput(Recovery(300.0, spares=None), 125, 1e6, 0.0, 4e7, seed=4)
    islands = goodput(Recovery(300.0, spares=None), 1000, 1e6, 0.0, 4e7, seed=5, islands=8)
    whole = goodput(Recovery(300.0, spares=None), 1000, 1e6, 0.0, 4e7, seed=6)
    assert islands.goodput == pytest.approx(alone.goodput, rel=0.005)
    assert whole.goodput < islands.goodput - 0.1


def test_spares_take_the_place_of_the_dead_until_there_are_none() -> None:
    """With r/μ·n = 5 workers away on average, 20 spares are nearly always enough, and 2 hardly ever."""
    missing = [
        goodput(Recovery(0.0, 100.0, 0.0, spares), 100, 20_000.0, 1000.0, 2e6, seed=7).missing for spares in (20, 2, 0)
    ]
    assert missing[0] < 1e-4
    assert missing[0] < missing[1] < missing[2]
    assert missing[2] == pytest.approx(1000 / 21_000, rel=0.05)


def test_a_failure_costs_half_of_the_time_between_two_saves_on_average() -> None:
    found = goodput(Recovery(0.0, 100.0, 0.0, None), 10, 1e5, 0.0, 4e7, seed=8)
    assert found.repeated == pytest.approx(50 / 1e4, rel=0.1)


@given(
    st.integers(1, 40), st.floats(200, 1e5), st.floats(0, 5e3), st.floats(0, 100), st.sampled_from([0.0, 50.0, 400.0]),
    st.floats(0, 20), st.sampled_from([None, 0, 3]), st.integers(0, 10**6),
)  # fmt: skip
def test_all_time_is_accounted_for(
    workers: int, mtbf_s: float, repair_s: float, pause_s: float, every_s: float, save_s: float, spares: int | None,
    seed: int,
) -> None:  # fmt: skip
    recovery = Recovery(pause_s, every_s, save_s, spares)
    group = Group(recovery, workers, mtbf_s, repair_s, np.random.default_rng(seed))
    found = group.follow(3000.0)
    assert sum(astuple(found)) == pytest.approx(1)
    assert all(share >= 0 for share in astuple(found))
    assert sum(astuple(group.spent)) == pytest.approx(workers * group.now)
    assert 0 <= group.alive <= workers
    if spares is not None:
        assert group.alive + group.spares + len(group.repairs) == workers + spares


def test_the_command_prints_a_row_per_method_and_refuses_more_islands_than_workers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    small = GoodputOptions(workers=1000, mtbf_days=10, days=2)
    command(options=replace(small, json=True))
    found = json.loads(capsys.readouterr().out)
    assert [row["method"] for row in found["rows"]] == [
        *("restart", "membership", "backup, 1 spare", "8 islands, restart", "8 islands, membership"),
    ]
    assert found["seconds_between_failures"] == pytest.approx(864)
    command(options=small)
    table = capsys.readouterr().out
    assert "1,000 workers, a failure every 14.4 min" in table
    assert "…" not in table, "it fits the width"
    with pytest.raises(UsageError, match="--islands 8 is more than --workers 4"):
        command(options=GoodputOptions(workers=4))
    with pytest.raises(UsageError, match=r"30 days would have .* failures and saves: give fewer --days, at most"):
        command(options=GoodputOptions(workers=10**6, mtbf_days=1e-3))


def test_a_group_that_never_recovers_is_followed_to_the_horizon_all_the_same() -> None:
    """A failure every second, and a pause of an hour: no pause ends."""
    group = Group(Recovery(3600.0, spares=None), 100, 100.0, 10.0, np.random.default_rng(0))
    found = group.follow(5000.0)
    assert group.now == pytest.approx(5000)
    assert found.pauses > 0.99
