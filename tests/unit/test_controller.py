"""The controller of dynamic synchronisation: its plans for given measurements."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from operator import mul

import pytest

from farandole.data_parallel.controller import Controller, Plan


def after(controller: Controller, step_s: list[float], exchange_s: float, rounds: int = 30) -> Plan:
    """Return the plan after `rounds` rounds without a change; no rank waits for the last one."""
    for _ in range(rounds):
        controller.observe(step_s, [exchange_s + max(step_s)] * (len(step_s) - 1) + [exchange_s])
    return controller.plan


def test_it_begins_with_a_step_each_or_with_the_period_given() -> None:
    assert Controller(3).plan == Plan(1, [1, 1, 1])
    assert Controller(3, period=5).plan == Plan(5, [5, 5, 5])


@pytest.mark.parametrize(("exchange_s", "period"), [(0.0, 1), (1.0, 4), (4.0, 8), (16.0, 16), (18.0, 17), (1e6, 64)])
def test_a_fourfold_exchange_means_twice_the_period_up_to_the_longest(exchange_s: float, period: int) -> None:
    plan = after(Controller(4, kappa=4, longest=64), [1.0] * 4, exchange_s)
    assert plan == Plan(period, [period] * 4)


def test_kappa_is_what_the_period_is_proportional_to() -> None:
    assert after(Controller(2, kappa=1), [1.0] * 2, 9.0).period == 3
    assert after(Controller(2, kappa=10), [1.0] * 2, 9.0).period == 30


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
def test_all_are_done_at_the_same_time_and_no_step_is_lost(ranks: int) -> None:
    step_s = [1.0 + rank for rank in range(ranks)]
    plan = after(Controller(ranks, kappa=64, longest=64), step_s, 100.0)
    assert sum(plan.steps) == plan.period * ranks
    seconds = [its * each for its, each in zip(plan.steps, step_s, strict=True)]
    assert max(seconds) - min(seconds) <= max(step_s)  # as near as whole steps allow


def test_a_round_is_long_enough_for_the_slowest_to_have_a_step_in_it() -> None:
    plan = after(Controller(4), [1.0, 1.0, 1.0, 4.0], 0.0)
    assert plan == Plan(4, [5, 5, 5, 1])  # with 3, [4, 4, 3, 1], the others wait longer for the slowest


def test_of_the_periods_near_each_other_it_is_the_one_with_which_ranks_wait_least() -> None:
    step_s = [1.0, 1.0, 1.0, 4.0]
    fixed = after(Controller(4, period=5), step_s, 6.0)
    assert fixed == Plan(5, [6, 6, 6, 2])  # of which the slowest takes 8, and the others 6
    assert after(Controller(4, kappa=2.4), step_s, 5.3).period == 4  # by cost alone 5
    assert after(Controller(4, kappa=2.4, balanced=False), step_s, 17.4).period == 5


@pytest.mark.parametrize("factor", [4.0, 10.0, 1000.0])
def test_nobody_takes_less_than_a_quarter_of_the_mean(factor: float) -> None:
    plan = after(Controller(4, kappa=8), [1.0, 1.0, 1.0, factor], 5.0)
    assert plan.period / plan.steps[3] <= 4
    assert plan.steps[3] == min(plan.steps)
    assert max(plan.steps[:3]) - min(plan.steps[:3]) <= 1
    assert sum(plan.steps) == 4 * plan.period


def test_a_change_is_followed_within_some_rounds_and_one_outlier_hardly() -> None:
    controller = Controller(4, kappa=4)
    assert after(controller, [1.0] * 4, 16.0).period == 16
    assert after(controller, [1.0] * 4, 1.0, rounds=8).period <= 5
    assert after(controller, [1.0] * 4, 1.0).period == 4
    controller.observe([1.0, 1.0, 1.0, 2.0], [1.0] * 4)
    assert controller.plan.steps[3] >= 2
    assert after(controller, [4.0, 1.0, 1.0, 1.0], 100.0).steps[0] < controller.plan.period / 3


def test_with_equal_steps_the_slowest_is_what_a_step_takes() -> None:
    plan = after(Controller(4, balanced=False, kappa=4), [1.0, 1.0, 1.0, 4.0], 16.0)
    assert plan == Plan(8, [8] * 4)


def test_a_fixed_period_may_still_be_divided_by_speed() -> None:
    plan = after(Controller(2, period=6), [1.0, 2.0], 16.0)
    assert plan == Plan(6, [8, 4])


WANTED, STEEP, RATE = (0.0, 1.0, 2.0, 3.0), (1.0, 0.2, 0.6, 0.2), 0.02  # rank r's loss is STEEP/2 · (w − WANTED)²


def time_to_the_optimum(controller: Controller, exchange_s: Callable[[int], float], near: float = 0.05) -> float:
    """Return when normalised local SGD from 100 is this near the sum's optimum; each step takes 1; infinite: never."""
    optimum = sum(map(mul, STEEP, WANTED)) / sum(STEEP)
    w, done, now = 100.0, 0, 0.0
    while abs(w - optimum) >= near:
        if done > 4000:
            return inf
        plan = controller.plan
        moved = [
            (1 - (1 - RATE * a) ** its) * (w - b) / its for a, b, its in zip(STEEP, WANTED, plan.steps, strict=True)
        ]
        w -= plan.period * sum(moved) / len(moved)
        now += max(plan.steps) + exchange_s(done)
        controller.observe([1.0] * 4, [exchange_s(done)] * 4)
        done += plan.period
    return now


@pytest.mark.parametrize("slow", [range(300), range(150, 400)], ids=["slow at first", "slow meanwhile"])
def test_where_the_network_becomes_fifty_times_slower_or_faster_it_is_sooner_than_every_fixed_period(
    slow: range,
) -> None:
    def exchange_s(step: int) -> float:
        return 25.0 if step in slow else 0.5

    ours = time_to_the_optimum(Controller(4), exchange_s)
    fixed = [time_to_the_optimum(Controller(4, period, balanced=False), exchange_s) for period in (1, 4, 8, 16, 64)]
    assert ours < 0.95 * min(fixed)
    assert fixed[-1] == inf  # long rounds end beside the optimum
