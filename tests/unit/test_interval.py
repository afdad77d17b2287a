"""How often to save: known numbers, and the model that they minimise."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from farandole.recovery.interval import Cadence, daly, expected_s, young

HOUR = 3600.0
RESTART_S = 30.0


def cheapest(cost_s: float, mtbf_s: float) -> tuple[float, float]:
    """Return the interval with the least modelled time, and that time, by search."""
    grid = np.geomspace(0.05, 20, 20_000) * young(cost_s, mtbf_s)
    times = [expected_s(HOUR, interval, cost_s, RESTART_S, mtbf_s) for interval in grid]
    best = int(np.argmin(times))
    assert 0 < best < len(grid) - 1
    return float(grid[best]), times[best]


def test_a_checkpoint_of_5_s_and_a_failure_an_hour() -> None:
    assert young(5.0, HOUR) == pytest.approx(189.7, abs=0.05)
    assert daly(5.0, HOUR) == pytest.approx(186.4, abs=0.05)


def test_dalys_interval_to_the_last_term() -> None:
    """C = μ = 1, so C/2μ = ½: √2·(1 + √½/3 + ½/9) − 1 = √2·19/18 + ⅓ − 1."""
    assert daly(1.0, 1.0) == pytest.approx(math.sqrt(2) * 19 / 18 - 2 / 3, rel=1e-12)


@pytest.mark.parametrize("ratio", [1e-2, 1e-4, 1e-6, 1e-8])
def test_both_agree_where_a_checkpoint_costs_little(ratio: float) -> None:
    difference = abs(daly(ratio * HOUR, HOUR) / young(ratio * HOUR, HOUR) - 1)
    assert 0 < difference < math.sqrt(ratio / 2), "of the order of √(C/2μ)"


@pytest.mark.parametrize(("cost_s", "mtbf_s"), [(0.01, 20.0), (5.0, HOUR), (60.0, HOUR), (1.0, 5.0), (600.0, HOUR)])
def test_dalys_interval_is_that_of_the_least_time(cost_s: float, mtbf_s: float) -> None:
    best_interval, least = cheapest(cost_s, mtbf_s)
    assert daly(cost_s, mtbf_s) == pytest.approx(best_interval, rel=0.01)
    assert expected_s(HOUR, daly(cost_s, mtbf_s), cost_s, RESTART_S, mtbf_s) <= least * 1.0001
    if cost_s > 0.01 * mtbf_s:
        away = abs(young(cost_s, mtbf_s) - best_interval)
        assert away > 5 * abs(daly(cost_s, mtbf_s) - best_interval), "that is what the higher order is for"


@pytest.mark.parametrize(
    ("factor", "least_more", "most_more"),
    [(0.9, 0, 0.0005), (0.5, 0, 0.015), (2, 0, 0.015), (0.1, 0.2, 1), (20, 0.2, 1)],
)
def test_the_curve_is_flat_near_the_best_interval_and_steep_far_from_it(
    factor: float, least_more: float, most_more: float
) -> None:
    best, away = (expected_s(HOUR, times * daly(5.0, HOUR), 5.0, RESTART_S, HOUR) for times in (1, factor))
    assert least_more < away / best - 1 < most_more


@pytest.mark.parametrize("cost_s", [200.0, 201.0, 1e6])
def test_where_a_checkpoint_takes_longer_than_the_machine_lives_the_interval_is_its_life(cost_s: float) -> None:
    assert daly(cost_s, 100.0) == 100.0


def test_a_machine_that_never_fails_only_pays_for_its_checkpoints() -> None:
    assert expected_s(1000.0, 10.0, 0.5, 60.0, 1e12) == pytest.approx(1000.0 + 100 * 0.5)


def test_it_takes_as_long_as_the_model_says() -> None:
    """Failures drawn at random, in work, checkpoints and restarts."""
    rng = random.Random(0)
    segments, interval_s, cost_s, restart_s, mtbf_s = 20_000, 40.0, 10.0, 20.0, 100.0
    elapsed = 0.0
    for _ in range(segments):
        left = interval_s + cost_s
        while (failure := rng.expovariate(1 / mtbf_s)) < left:
            elapsed += failure
            left = restart_s + interval_s + cost_s
            while (failure := rng.expovariate(1 / mtbf_s)) < restart_s:
                elapsed += failure
            elapsed += restart_s
            left = interval_s + cost_s
        elapsed += left
    expected = expected_s(segments * interval_s, interval_s, cost_s, restart_s, mtbf_s)
    assert elapsed == pytest.approx(expected, rel=0.02)


def due_steps(cadence: Cadence, steps: int) -> list[int]:
    saved, found = 0, []
    for step in range(1, steps + 1):
        if cadence.due(step - saved):
            saved = step
            found.append(step)
    return found


@pytest.mark.parametrize(("every", "steps"), [(1, [1, 2, 3, 4, 5, 6, 7]), (3, [3, 6]), (8, []), (0, [])])
def test_by_steps(every: int, steps: list[int]) -> None:
    assert due_steps(Cadence(every), 7) == steps


def test_what_a_checkpoint_costs_decides_only_where_failures_are_expected() -> None:
    fixed, fitted, none = Cadence(20), Cadence(20, mtbf_s=100.0), Cadence(0, mtbf_s=100.0)
    for cadence in (fixed, fitted, none):
        cadence.measured(cost_s=0.5, step_s=0.2)
    assert young(0.5, 100.0) == pytest.approx(10.0)
    assert (fixed.every, fitted.every, none.every) == (20, 50, 0)
    fitted.measured(cost_s=2.0, step_s=0.2)
    assert fitted.every == 100, "each one decides anew"


def test_it_never_saves_less_than_a_step_apart() -> None:
    cadence = Cadence(20, mtbf_s=0.001)
    cadence.measured(cost_s=0.001, step_s=5.0)
    assert cadence.every == 1
