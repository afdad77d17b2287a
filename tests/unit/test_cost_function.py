"""T_comm and T_comp by formula: against the schedules, against draws, and at their limits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from farandole.collectives import costs
from farandole.collectives.bidirectional_ring import BIDIRECTIONAL_RING
from farandole.collectives.central import CENTRAL
from farandole.collectives.costs import Link, Machine
from farandole.collectives.doubling import DOUBLING
from farandole.collectives.halving_doubling import HALVING_DOUBLING
from farandole.collectives.hierarchical import hierarchical
from farandole.collectives.ring import RING
from farandole.collectives.tree import TREE
from farandole.cost import cost_function
from farandole.cost.comparison import Choice, compared
from farandole.cost.cost_function import Cost, all_reduce_s, coefficients, noise_scale, steps_needed
from farandole.cost.simulator import Setting
from farandole.cost.stragglers import Constant, harmonic, parse
from farandole.errors import UsageError
from farandole.methods import simulated

SCHEDULES = {
    "ring": RING, "central": CENTRAL, "tree": TREE, "doubling": DOUBLING, "halving-doubling": HALVING_DOUBLING,
    "bidirectional-ring": BIDIRECTIONAL_RING,
}  # fmt: skip
LINK = Link(1e-4, 1e-9)


@pytest.mark.parametrize("method", SCHEDULES)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 7, 8, 12, 16, 17])
def test_the_formula_counts_what_the_schedule_does(method: str, ranks: int) -> None:
    assert coefficients(method, ranks) == pytest.approx(costs.coefficients(SCHEDULES[method], ranks)[:2])


@pytest.mark.parametrize(("ranks", "per_node"), [(4, 2), (8, 4), (12, 3)])
def test_the_hierarchical_formula_too(ranks: int, per_node: int) -> None:
    nbytes, within = 120_000, Link(1e-5, 1e-10)
    machine = Machine(within, 0.0, across=LINK, per_node=per_node)
    by_steps = costs.predicted_s(hierarchical(per_node), ranks, nbytes, machine)
    assert cost_function.hierarchical_s(ranks, per_node, nbytes, within, LINK) == pytest.approx(by_steps)


def test_nodes_have_to_be_full() -> None:
    with pytest.raises(UsageError, match="10 workers do not fill nodes of 4"):
        cost_function.hierarchical_s(10, 4, 1.0, LINK, LINK)


def test_the_ways_in_order() -> None:
    exponential, nbytes = parse("exponential"), 4e6
    reduce_s = all_reduce_s("ring", 8, nbytes, LINK)
    full = cost_function.synchronous(exponential, 0.1, 8, reduce_s)
    assert full.compute_s == pytest.approx(0.1 * harmonic(8))
    assert full.overlapped_s < full.total_s == full.compute_s + full.comm_s
    assert cost_function.partial(exponential, 0.1, 8, 7, reduce_s).compute_s == pytest.approx(0.1718, abs=1e-4)
    apart = cost_function.local_sgd(exponential, 0.1, 8, 16, reduce_s)
    assert apart.comm_s == reduce_s / 16
    assert 0.1 < apart.compute_s < 0.17, "over 16 steps luck evens out"
    once = cost_function.local_sgd(exponential, 0.1, 8, 1, reduce_s)
    assert once.compute_s == pytest.approx(full.compute_s, rel=0.1)
    assert Cost(1.0, 3.0).overlapped_s == 3.0


def test_one_server_is_the_bottleneck_and_as_many_as_workers_are_not() -> None:
    one = cost_function.parameter_server(Constant(), 0.1, 50, 4e6, LINK)
    assert one.comm_s == pytest.approx(2e-4 + 2 * 50 * 4e-3)
    many = cost_function.parameter_server(Constant(), 0.1, 50, 4e6, LINK, servers=500)
    assert many.comm_s == pytest.approx(2e-4 + 2 * 4e-3)


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
    assert 0 < row.efficiency <= 1
    assert row.outcome.to_loss_s is None or row.outcome.to_loss_s <= row.outcome.wall_s
    assert row.to_dict()["method"] == method


@pytest.mark.parametrize("method", simulated())
@pytest.mark.parametrize("straggler", ["constant", "pareto:1.5", "exponential", "slow:worker=0,factor=10"])
def test_no_method_is_faster_than_without_waiting_and_messages(method: str, straggler: str) -> None:
    """However the few computing times were drawn: where nothing costs anything, asynchronous ones come close."""
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
    apart = cost_function.local_sgd(setting.straggler, 0.1, 8, 8, all_reduce_s("ring", 8, 4e6, LINK))
    assert local.step_s == pytest.approx(apart.total_s, rel=0.05)
    assert local.outcome.comm_s == pytest.approx(ring.outcome.comm_s / 8)


@pytest.mark.parametrize(("workers", "per_node"), [(1, 1), (6, 6), (7, 7), (10, 5), (11, 1), (100, 5), (64, 8)])
def test_nodes_are_as_large_as_the_workers_fill_them(workers: int, per_node: int) -> None:
    setting = Setting(workers, 3, 0.1, parse("lognormal:0.5"), 1e5, LINK)
    rows = [compared("hierarchical", setting, choice) for choice in (Choice(), Choice(per_node=per_node))]
    assert rows[0].step_s == rows[1].step_s
