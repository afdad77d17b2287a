"""Rounds planned by the real controller: local SGD without a plan, and unequal steps as really taken."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from farandole.collectives.costs import Link
from farandole.cost.comparison import Choice, compared, dynamic_rounds
from farandole.cost.cost_function import all_reduce_s
from farandole.cost.outer_rounds import OuterRounds
from farandole.cost.quadratic import CURVATURES
from farandole.cost.rounds import OwnSteps, _mean_move, planned
from farandole.cost.setting import Draws, Setting
from farandole.cost.sharding import exposed_s
from farandole.cost.stragglers import Slow, parse
from farandole.data_parallel.controller import Controller
from farandole.data_parallel.outer_step import Outer
from farandole.sharded import steps as zero

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
    """κ·√(m/c) steps, after a first round of one step each."""
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
        right = [sum(draws.seconds(each, used[each] + i) for i in range(count)) for each, count in enumerate(steps)]
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
    row = compared("dynamic-rounds", replace(SETTING, workers=10_000, steps=5), Choice())
    assert row.outcome.gradients == row.setting.steps * 10_000
    assert 0 < row.efficiency < 1


@pytest.mark.parametrize("period", [1, 5, 8])
def test_diloco_without_an_outer_optimizer_is_local_sgd(period: int) -> None:
    reduce_s = all_reduce_s("ring", 8, SETTING.nbytes, SETTING.link)
    outcome = OuterRounds(SETTING, Outer(period, lr=1.0, momentum=0.0), reduce_s).run()
    local = compared("local-sgd", SETTING, Choice(period=period)).outcome
    assert outcome.final_loss == pytest.approx(local.final_loss)
    for name in ("wall_s", "wait_s", "comm_s", "compute_s"):
        assert getattr(outcome, name) == pytest.approx(getattr(local, name)), name


def test_a_delay_hides_what_takes_less_than_its_steps() -> None:
    """4 fragments in 8 steps: every second step one is sent, and needed 1 step of 0.1 s later."""
    for reduce_s, expected_s in ((0.1, 8.0), (0.15, 8.0 + 39 * 0.05)):
        outer = Outer(8, 0.7, 0.9, fragments=4, delay=1)
        outcome = OuterRounds(replace(SETTING, steps=80, straggler=parse("constant")), outer, reduce_s).run()
        # Nothing hides the fragment that is sent after the last step, nor the three that have moved since.
        assert outcome.wall_s == pytest.approx(expected_s + 4 * reduce_s)
        assert outcome.wait_s == pytest.approx(0)


def test_streaming_reaches_the_loss_as_diloco_does() -> None:
    quiet = replace(SETTING, noise=0.0, steps=200)
    whole, streamed = (compared(method, quiet, Choice()) for method in ("diloco", "streaming-diloco"))
    assert streamed.outcome.to_loss_s is not None
    assert whole.outcome.to_loss_s is not None
    assert streamed.outcome.to_loss_s < whole.outcome.to_loss_s < compared("ring", quiet, Choice()).outcome.to_loss_s  # type: ignore[operator]


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_zero_takes_the_rings_bytes_and_half_as_many_again_and_more_latency(workers: int) -> None:
    for link, alphas in ((Link(0, 1e-8), 0), (Link(1e-3, 0), 1e-3 * (workers - 1))):
        setting = replace(SETTING, workers=workers, link=link)
        names = ("ring", "zero-1", "zero-2", "zero-3")
        took = {name: compared(name, setting, Choice(units=5)).step_s for name in names}
        bytes_s = 0 if alphas else 2 * (workers - 1) / workers * setting.nbytes * link.beta
        more = {name: took[name] - took["ring"] for name in took}
        assert more["zero-1"] == pytest.approx((2 * 5 - 2) * alphas)
        assert more["zero-2"] == pytest.approx((2 * 5 - 2) * alphas)
        assert more["zero-3"] == pytest.approx((3 * 5 - 2) * alphas + bytes_s / 2)


def test_prefetch_by_hand() -> None:
    """Three units, 1 s forward, 2 s backward, 1 s for each collective.

    computing        0 from 1, 1 from 2, 2 from 3 to 4; then back: 2 from 5, 1 from 7, 0 from 9 to 11
    collectives      gather 0, 1, 2 until 3, 2 again from 4, 1 from 5; reduce 2 from 7, gather 0 from 8, reduce 1 from 9
                     and 0 from 11 to 12
    """
    order, seconds = list(zero.steps(3, 3)), {"gather": 1.0, "reduce": 1.0}
    assert exposed_s(order, seconds, prefetch=False, compute_s=9.0) == 9.0
    assert exposed_s(order, seconds, prefetch=True, compute_s=9.0) == 3.0
    slow = {"gather": 10.0, "reduce": 10.0}
    assert exposed_s(order, slow, prefetch=False, compute_s=9.0) == 90.0
    # One thread carries nine of them, and idles while the last unit computes, whose parameters are gathered twice.
    assert exposed_s(order, slow, prefetch=True, compute_s=9.0) == 90.0 + 1.0 - 9.0
