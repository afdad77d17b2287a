"""Rounds that the very controller plans: local SGD where nothing is planned, and unequal steps as if really taken."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from farandole.collectives.costs import Link
from farandole.cost.comparison import Choice, compared, dynamic_rounds
from farandole.cost.cost_function import all_reduce_s
from farandole.cost.quadratic import CURVATURES
from farandole.cost.rounds import OwnSteps, _mean_move, planned
from farandole.cost.setting import Draws, Setting
from farandole.cost.stragglers import Slow, parse
from farandole.data_parallel.controller import Controller

SETTING = Setting(8, 64, 0.1, parse("lognormal:0.5"), 4e6, Link(1e-3, 1e-8), seed=2)


@pytest.mark.parametrize("period", [1, 8, 64])
@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_with_a_fixed_period_and_equal_steps_it_is_local_sgd(workers: int, period: int) -> None:
    setting = replace(SETTING, workers=workers, noise=0.0)
    outcome = dynamic_rounds(setting, Controller(workers, period, balanced=False))
    local = compared("local-sgd", setting, Choice(period=period)).outcome
    telling_s = all_reduce_s("doubling", workers, 16 * workers, setting.link)
    assert outcome.wall_s == pytest.approx(local.wall_s + 64 / period * telling_s)
    assert outcome.wait_s == pytest.approx(local.wait_s)
    assert outcome.gradients == local.gradients
    assert outcome.final_loss == pytest.approx(local.final_loss)


def test_without_stragglers_and_network_all_is_computing() -> None:
    outcome = dynamic_rounds(Setting(4, 100), Controller(4))
    assert outcome.wall_s == pytest.approx(100 * 0.1)
    assert outcome.wait_s == pytest.approx(0)


def test_a_dear_all_reduce_makes_long_rounds() -> None:
    """κ·√(m/c) of them, after the first of a step each."""
    setting = Setting(4, 65, 0.1, nbytes=1e6, link=Link(0.0, 1e-6 * 0.4 / 1.5))
    controller = Controller(4)
    assert planned(setting, controller, 0.4, 0.0).wall_s == pytest.approx(0.5 + 8 * (0.8 + 0.4))
    assert controller.plan.period == 8
    longer = compared("dynamic-rounds", setting, Choice(kappa=16)).outcome
    capped = compared("dynamic-rounds", setting, Choice(kappa=16, longest=8)).outcome
    assert longer.wall_s < capped.wall_s == pytest.approx(0.5 + 8 * (0.8 + 0.4), rel=1e-4)


def test_a_worker_that_is_slow_for_good_takes_fewer_steps() -> None:
    slow = Setting(4, 200, 0.1, Slow(worker=3, factor=4))
    ring, equal, divided = (
        compared(method, slow, Choice(equal_steps=equal_steps))
        for method, equal_steps in (("ring", False), ("dynamic-rounds", True), ("dynamic-rounds", False))
    )
    assert ring.step_s == pytest.approx(equal.step_s) == pytest.approx(0.4)
    assert divided.step_s == pytest.approx(4 / (3 / 0.1 + 1 / 0.4), rel=0.05)


def test_the_last_round_is_a_whole_one() -> None:
    row = compared("dynamic-rounds", replace(SETTING, steps=10, link=Link(1.0, 0)), Choice())
    assert row.outcome.gradients == row.setting.steps * 8 > 80
    assert row.step_s == row.outcome.wall_s / row.setting.steps


def test_each_worker_uses_its_own_times_one_after_the_other() -> None:
    setting = replace(SETTING, workers=3, steps=5)
    own, draws, used = OwnSteps(setting), Draws(setting), [0, 0, 0]
    for steps in ([1, 2, 4], [3, 1, 9], [1, 1, 20]):
        right = [sum(draws(each, used[each] + i) for i in range(count)) for each, count in enumerate(steps)]
        assert own.take(np.array(steps)).tolist() == pytest.approx(right)
        used = [before + count for before, count in zip(used, steps, strict=True)]


def test_unequal_steps_move_as_if_each_worker_had_taken_them() -> None:
    setting, taken, x = replace(SETTING, workers=3, lr=0.4), np.array([1, 3, 8]), np.array([1.0, -2.0, 0.5, 3.0])
    rng, repeats = np.random.default_rng(0), 20_000
    moves = np.zeros((repeats, 4))
    for count in taken:
        own = np.tile(x, (repeats, 1))
        for _ in range(count):
            own -= 0.4 * (CURVATURES * own + rng.normal(scale=0.3, size=own.shape))
        moves += (x - own) / count / 3
    drawn = np.array([_mean_move(setting, x, taken, rng) for _ in range(repeats)])
    error = moves.std(axis=0) / np.sqrt(repeats)
    assert (np.abs(drawn.mean(axis=0) - moves.mean(axis=0)) < 5 * 2**0.5 * error).all()
    np.testing.assert_allclose(drawn.std(axis=0), moves.std(axis=0), rtol=5 * 2**0.5 / np.sqrt(2 * repeats))


def test_same_seed_same_everything() -> None:
    first, again, other = (
        compared("dynamic-rounds", setting, Choice()).outcome
        for setting in (SETTING, SETTING, replace(SETTING, seed=3))
    )
    assert first == again != other


def test_ten_thousand_workers() -> None:
    row = compared("dynamic-rounds", replace(SETTING, workers=10_000, steps=20), Choice())
    assert row.outcome.gradients == row.setting.steps * 10_000
    assert 0 < row.efficiency < 1
