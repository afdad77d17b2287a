"""T_comm and T_comp: all-reduces against their formulas, computing times against draws, and both at their limits."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, log2
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from farandole.collectives.costs import Link
from farandole.cost import cost_function
from farandole.cost.comparison import Choice, compared
from farandole.cost.cost_function import all_gather_s, all_reduce_s, noise_scale, steps_needed
from farandole.cost.setting import Setting
from farandole.cost.stragglers import harmonic, parse
from farandole.errors import UsageError
from farandole.methods import simulated

LINK = Link(1e-4, 1e-9)
Formula = Callable[[int], tuple[float, float]]  # ranks → multiples of α and nβ


def folded(rounds: int, bytes_of: Formula, ranks: int) -> tuple[float, float]:
    """Two messages of the whole vector beside those of the power of two, if there are more ranks."""
    power = 1 << (ranks.bit_length() - 1)
    extra = 0 if power == ranks else 2
    alphas, betas = bytes_of(power)
    return rounds * alphas + extra, betas + extra


FORMULAS: dict[str, Formula] = {
    "ring": lambda p: (2 * (p - 1), 2 * (p - 1) / p),
    "bidirectional-ring": lambda p: (2 * (p - 1), 2 * (p - 1) / p),
    "central": lambda p: (2 * (p - 1), 2 * (p - 1)),
    "tree": lambda p: (2 * ceil(log2(p)), 2 * ceil(log2(p))),
    "doubling": lambda p: folded(1, lambda power: (log2(power), log2(power)), p),
    "halving-doubling": lambda p: folded(2, lambda power: (log2(power), 2 * (power - 1) / power), p),
}


@pytest.mark.parametrize("method", FORMULAS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 1000, 10_000])
def test_an_all_reduce_costs_what_its_formula_says(method: str, ranks: int) -> None:
    alphas, betas = FORMULAS[method](ranks)
    expected = alphas * LINK.alpha + betas * 1e6 * LINK.beta
    assert all_reduce_s(method, ranks, 1e6, LINK) == pytest.approx(expected)


@pytest.mark.parametrize("ranks", [1, 2, 7, 1000])
def test_an_all_gather_is_half_of_a_ring(ranks: int) -> None:
    assert all_gather_s(ranks, 1e6, LINK) == pytest.approx(all_reduce_s("ring", ranks, 1e6, LINK) / 2)


@pytest.mark.parametrize(("ranks", "per_node"), [(4, 2), (8, 4), (12, 3), (10_000, 8)])
def test_hierarchical_costs_what_its_formula_says(ranks: int, per_node: int) -> None:
    nbytes, within, nodes = 120_000, Link(1e-5, 1e-10), ranks // per_node
    inside = 2 * (per_node - 1) * within.message_s(nbytes / per_node)
    beyond = 2 * (nodes - 1) * LINK.message_s(nbytes / ranks)
    assert cost_function.hierarchical_s(ranks, per_node, nbytes, within, LINK) == pytest.approx(inside + beyond)


def test_nodes_have_to_be_full() -> None:
    with pytest.raises(UsageError, match="10 workers do not fill nodes of 4"):
        cost_function.hierarchical_s(10, 4, 1.0, LINK, LINK)


def test_a_synchronous_step_waits_for_the_slowest_and_for_the_all_reduce() -> None:
    reduce_s = all_reduce_s("ring", 8, 4e6, LINK)
    cost = cost_function.synchronous(parse("exponential"), 0.1, 8, reduce_s)
    assert cost.compute_s == pytest.approx(0.1 * harmonic(8))
    assert cost.total_s == cost.compute_s + cost.comm_s == cost.compute_s + reduce_s


def test_amdahl_and_gustafson_agree_where_nothing_is_serial_and_for_one() -> None:
    assert cost_function.amdahl(0, 100) == cost_function.gustafson(0, 100) == 100
    assert cost_function.amdahl(0.3, 1) == cost_function.gustafson(0.3, 1) == 1
    assert cost_function.amdahl(0.05, 10**9) == pytest.approx(20)
    assert cost_function.gustafson(0.05, 100) == pytest.approx(95.05)


def test_the_critical_batch_is_found_from_two_batches() -> None:
    rng = np.random.default_rng(0)
    true, sigma = np.full(50, 0.1), 1.5
    lengths = {
        batch: np.mean([np.sum(rng.normal(true, sigma / batch**0.5) ** 2) for _ in range(4000)]) for batch in (8, 64)
    }
    found = noise_scale(8, float(lengths[8]), 64, float(lengths[64]))
    assert found.variance == pytest.approx(50 * sigma**2, rel=0.05)
    assert found.squared_gradient == pytest.approx(0.5, rel=0.15)
    assert found.critical_batch == pytest.approx(225, rel=0.2)
    assert steps_needed(100, 225, 225) == 200
    with pytest.raises(UsageError, match="must be smaller"):
        noise_scale(8, 1.0, 8, 1.0)
    assert noise_scale(1, 1.0, 2, 0.5).critical_batch == float("inf")


def test_the_four_sides_of_a_record() -> None:
    summary = SimpleNamespace(
        compute_s=[3.0, 3.0], comm_s=[1.0, 1.0], wait_s=[1.0, 1.0], steps=10, ranks=2, samples_per_s=30.0
    )
    metrics = [{"step": step, "loss": 1 / (step + 1)} for step in range(10)]
    run = cast(Any, SimpleNamespace(summary=summary, metrics=metrics))
    sides = cost_function.sides(run, goal=0.25, alone=cast(Any, SimpleNamespace(samples_per_s=20.0)))
    assert sides == cost_function.Sides(0.1, 0.6, 3, 1.5)
    assert cost_function.sides(run, goal=0.01).steps_to_loss is None


@pytest.mark.parametrize("method", simulated())
@pytest.mark.parametrize("workers", [1, 2, 4, 16])
def test_every_method_can_be_compared(method: str, workers: int) -> None:
    setting = Setting(workers, 40, 0.1, parse("lognormal:0.5"), 1e5, LINK)
    row = compared(method, setting, Choice(per_node=2))
    assert 0 < row.efficiency <= 1 + 1e-12, "a pipeline adds up many passes, and rounds each"
    assert row.outcome.to_loss_s is None or row.outcome.to_loss_s <= row.outcome.wall_s
    assert row.to_dict()["method"] == method


@pytest.mark.parametrize("method", simulated())
@pytest.mark.parametrize("straggler", ["constant", "pareto:1.5", "exponential", "slow:worker=0,factor=10"])
def test_no_method_is_faster_than_without_waiting_and_messages(method: str, straggler: str) -> None:
    """For any small sample of computing times: without communication cost, asynchronous methods come close."""
    for seed in range(5):
        for workers in (1, 4):
            setting = Setting(workers, 8, 0.1, parse(straggler), 0.0, Link(0.0, 0.0), seed=seed)
            part = compared(method, setting, Choice(per_node=2)).efficiency
            assert 0 < part <= 1 + 1e-9
            if workers == 1 and method != "half":  # which pauses
                assert part == pytest.approx(1)


def test_a_synchronous_step_is_the_slowest_and_the_all_reduce_and_local_sgd_pays_for_both_less_often() -> None:
    setting = Setting(8, 2000, 0.1, parse("exponential"), 4e6, LINK)
    ring, local = (compared(method, setting, Choice(period=8)) for method in ("ring", "local-sgd"))
    predicted = cost_function.synchronous(setting.straggler, 0.1, 8, all_reduce_s("ring", 8, 4e6, LINK))
    assert ring.step_s == pytest.approx(predicted.total_s, rel=0.05)
    sums = setting.straggler.sample(np.random.default_rng(1), 8 * 400, 8).reshape(400, 8, 8).sum(axis=1) * 0.1
    assert local.step_s == pytest.approx((sums.max(axis=1).mean() + all_reduce_s("ring", 8, 4e6, LINK)) / 8, rel=0.05)
    assert local.outcome.comm_s == pytest.approx(ring.outcome.comm_s / 8)


@pytest.mark.parametrize(("workers", "per_node"), [(1, 1), (6, 6), (7, 7), (10, 5), (11, 1), (100, 5), (64, 8)])
def test_nodes_are_as_large_as_the_workers_fill_them(workers: int, per_node: int) -> None:
    setting = Setting(workers, 3, 0.1, parse("lognormal:0.5"), 1e5, LINK)
    rows = [compared("hierarchical", setting, choice) for choice in (Choice(), Choice(per_node=per_node))]
    assert rows[0].step_s == rows[1].step_s
