"""Workers that fail: the times of their steps against the formula, and their effect on the methods."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from farandole.cost.comparison import Choice, compared
from farandole.cost.failures import Failing, failing
from farandole.cost.setting import Setting
from farandole.cost.stragglers import Constant, LogNormal
from farandole.errors import UsageError


@pytest.mark.parametrize(("every", "recover"), [(0.7, 0.0), (2.0, 5.0), (50.0, 10.0)])
def test_a_steps_mean_time_is_the_formulas(every: float, recover: float) -> None:
    times = Failing(Constant(), every, recover).sample(np.random.default_rng(0), 400, 1000)
    right = (every + recover) * (math.exp(1 / every) - 1)
    error = times.std() / math.sqrt(times.size)
    assert abs(times.mean() - right) < 5 * error, "once in two million seeds it is farther off"
    assert times.min() == 1.0, "who does not fail takes as long as ever"


def test_without_failures_nothing_changes() -> None:
    plain = LogNormal(0.5).sample(np.random.default_rng(3), 50, 20)
    never = Failing(LogNormal(0.5), 1e12, 100.0).sample(np.random.default_rng(3), 50, 20)
    assert np.array_equal(plain, never)
    assert Failing(LogNormal(0.5), 1e12, 100.0).mean == 1.0


def test_who_waits_for_all_waits_for_everybodys_failures() -> None:
    setting = Setting(workers=64, steps=5000, compute_s=1.0)
    frail = replace(setting, straggler=Failing(Constant(), every=1000.0, recover=20.0))
    # One of 64 fails in a step with a chance of 0.062, and then all wait for its recovery and the step it has lost.
    right = 1 + (1 - math.exp(-64 / 1000)) * (20 + 0.5)
    assert compared("ring", frail, Choice()).step_s == pytest.approx(right, rel=0.2), "310 failures, on average"
    shorter = replace(frail, steps=300)
    ring, bsp, alone = (compared(method, shorter, Choice()) for method in ("ring", "bsp", "async"))
    assert bsp.step_s == pytest.approx(ring.step_s, rel=0.01), "a server waits for the same ones"
    free = 1 / (1020 * (math.exp(1 / 1000) - 1))
    assert alone.efficiency == pytest.approx(free, rel=0.05), "nobody waits, and 2 % is lost"


def test_who_never_finishes_is_refused() -> None:
    with pytest.raises(ValueError, match="hardly ever finish one"):
        Failing(Constant(), 0.4, 1.0)
    assert Failing(Constant(), 0.5, 1.0).every == 0.5, "half a step is enough"


def test_times_given_in_seconds_are_in_steps_then() -> None:
    """Steps of 0.25 s, a failure each 100 s, and 5 s to recover."""
    assert failing(Constant(), 100.0, 5.0, compute_s=0.25) == Failing(Constant(), every=400.0, recover=20.0)
    assert failing(Constant(), None, 5.0, compute_s=0.25) == Constant()
    with pytest.raises(UsageError, match=r"--fail-every 0.1: a worker that lives for less than 0.5 steps"):
        failing(Constant(), 0.1, 5.0, compute_s=0.25)
