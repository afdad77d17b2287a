"""The simulator against closed forms, and the policies' guarantees in it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farandole.collectives.costs import Link
from farandole.cost import event_windows, late_gradients
from farandole.cost.event_windows import EventWindows
from farandole.cost.setting import Draws, Outcome, Setting
from farandole.cost.simulator import Simulation
from farandole.cost.stragglers import Constant, Slow, harmonic, parse
from farandole.parameter_server.core.policies import (
    BSP,
    DSSP,
    SSP,
    Asynchronous,
    Half,
    History,
    Partial,
    Policy,
)
from tests.unit.ledger_simulation import LedgerSimulation

Make = Callable[[range], Policy]
EVERY: dict[str, Make] = {
    "bsp": BSP,
    "ssp": lambda workers: SSP(workers, 3),
    "asynchronous": Asynchronous,
    "half": lambda workers: Half(workers, 3, 0.05),
    "partial": lambda workers: Partial(workers, max(1, len(workers) - 1)),
    "dssp": lambda workers: DSSP(workers, 1, 4),
    "history": lambda workers: History(workers, max(1, len(workers) - 1)),
}


def simulated(make: Make, setting: Setting) -> Outcome:
    return Simulation(make(range(setting.workers)), setting).run()


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 7, 32])
def test_minibatch_takes_as_long_as_the_slowest(workers: int) -> None:
    setting = Setting(workers, 2000, 0.1, parse("exponential"))
    outcome = simulated(BSP, setting)
    assert outcome.wall_s / 2000 == pytest.approx(0.1 * harmonic(workers), rel=0.06)
    drawn = parse("exponential").sample(np.random.default_rng([0, 0]), 2000, workers) * 0.1
    assert outcome.wall_s == pytest.approx(drawn.max(axis=1).sum()), "to the last digit, with the same draws"
    assert outcome.gradients == 2000 * workers
    assert set(outcome.staleness) == {0}


@pytest.mark.parametrize(("k", "n"), [(1, 2), (3, 4), (7, 8), (6, 8)])
def test_partial_takes_as_long_as_the_kth(k: int, n: int) -> None:
    """Exact in the first step. Later some workers still compute dropped gradients, and the k-th is later."""
    firsts = [
        simulated(lambda workers: Partial(workers, k), Setting(n, 1, 1.0, parse("exponential"), seed=seed)).wall_s
        for seed in range(200)
    ]
    kth = harmonic(n) - harmonic(n - k)
    assert np.mean(firsts) == pytest.approx(kth, rel=0.12)
    later = simulated(lambda workers: Partial(workers, k), Setting(n, 1000, 1.0, parse("exponential"))).wall_s / 1000
    assert kth * 0.95 < later < harmonic(k) * 1.05
    if k > 1:
        assert later > kth * 1.05


def test_asynchronous_goes_as_fast_as_all_together() -> None:
    setting = Setting(4, 400, 0.1, Slow(worker=3, factor=4))
    outcome = simulated(Asynchronous, setting)
    assert outcome.gradients / outcome.wall_s == pytest.approx(3 / 0.1 + 1 / 0.4, rel=0.01)
    assert outcome.wait_s == 0


def test_stale_by_nothing_is_minibatch_event_by_event() -> None:
    setting = Setting(5, 60, 0.1, parse("lognormal:0.8"), 1e5, Link(1e-3, 1e-8))
    bsp = Simulation(BSP(range(5)), setting)
    ssp = Simulation(SSP(range(5), 0), setting)
    assert bsp.run().wall_s == ssp.run().wall_s
    assert sorted(bsp.starts) == sorted(ssp.starts)


@pytest.mark.parametrize("staleness", [0, 1, 4])
def test_the_bound_is_kept_and_used(staleness: int) -> None:
    setting = Setting(6, 100, 0.1, Slow(worker=0, factor=3))
    outcome = simulated(lambda workers: SSP(workers, staleness), setting)
    assert max(outcome.lead) == staleness
    assert outcome.wait_share > 0.3, "a worker that is always slow sets the pace in the end"


@pytest.mark.parametrize("make", [BSP, Asynchronous])
@pytest.mark.parametrize("servers", [1, 2, 5])
def test_a_servers_link_is_what_many_workers_wait_for(make: Make, servers: int) -> None:
    """2Pnβ/S; half of it where reads and pushes pass each other."""
    setting = Setting(50, 40, 1e-4, Constant(), 4e6, Link(0.0, 1e-9), servers)
    round_s = 2 * 4e6 * 50 * 1e-9 / servers
    assert simulated(make, setting).wall_s / 40 == pytest.approx(round_s, rel=0.05)
    duplex = simulated(make, replace(setting, duplex=True)).wall_s / 40
    assert round_s / 2 * 0.95 < duplex < round_s * 0.6


def test_one_worker_has_the_link_for_itself() -> None:
    setting = Setting(1, 10, 0.1, Constant(), 1e6, Link(1e-3, 1e-8), servers=4)
    step_s = 0.1 + 2 * (1e-3 + 1e6 * 1e-8)
    outcome = simulated(BSP, setting)
    assert outcome.wall_s == pytest.approx(10 * step_s)
    assert outcome.comm_s == pytest.approx(10 * (step_s - 0.1))


@pytest.mark.parametrize("name", EVERY)
def test_same_seed_same_everything(name: str) -> None:
    setting = Setting(7, 50, 0.1, parse("lognormal:0.5"), 1e5, Link(1e-4, 1e-9), seed=3)
    assert simulated(EVERY[name], setting) == simulated(EVERY[name], setting)
    assert simulated(EVERY[name], setting) != simulated(EVERY[name], replace(setting, seed=4))


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("workers", [1, 2, 3, 4, 7])
def test_every_gradient_is_accounted_for(name: str, workers: int) -> None:
    setting = Setting(workers, 30, 0.1, parse("exponential"))
    simulation = Simulation(EVERY[name](range(workers)), setting)
    outcome = simulation.run()
    assert outcome.gradients + outcome.dropped == outcome.computed == len(simulation.starts)
    if name not in ("partial", "history"):
        assert outcome.gradients == 30 * workers
        assert outcome.dropped == 0
    assert sum(outcome.staleness.values()) == outcome.gradients
    assert outcome.final_loss < 0.9


@pytest.mark.parametrize("name", EVERY)
def test_ten_thousand_workers(name: str) -> None:
    workers, steps = 10_000, 2
    setting = Setting(workers, steps, 0.1, parse("lognormal:0.5"))
    simulation = Simulation(EVERY[name](range(workers)), setting)
    outcome = simulation.run()
    assert outcome.gradients + outcome.dropped == outcome.computed == sum(outcome.lead.values())
    assert sum(outcome.staleness.values()) == outcome.gradients
    if name in ("partial", "history"):
        assert steps * (workers - 1) <= outcome.gradients <= steps * workers, "at most one a step is left out"
    else:
        assert outcome.gradients == steps * workers
    if name == "bsp":
        assert outcome.wall_s == pytest.approx(Draws(setting).block().max(axis=1).sum() * setting.compute_s)
    assert max(outcome.lead) <= {"bsp": 0, "ssp": 3, "half": 3, "dssp": 4}.get(name, workers)


@pytest.mark.parametrize("make", [BSP, Asynchronous])
def test_computations_are_sorted_a_quarter_at_a_time_and_arrive_in_windows(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A window is as long as no computation that begins in it can end in it."""
    calls: Counter[str] = Counter()

    def counted(name: str) -> Callable[[EventWindows], Any]:
        call = getattr(EventWindows, name)

        def count(events: EventWindows) -> Any:
            calls[name] += 1
            return call(events)

        return count

    for name in ("_find_earliest", "_sure"):
        monkeypatch.setattr(EventWindows, name, counted(name))
    workers, steps = 4 * event_windows.FEW, 5
    times = parse("shifted-exponential:shift=0.05")
    setting = Setting(workers, steps, 0.1, times, 1e6, Link(1e-4, 1e-9), servers=workers, duplex=True)
    outcome = Simulation(make(range(workers)), setting).run()
    window_s = 0.05 * 0.1 + 2 * (1e-4 + 1e6 * 1e-9)
    assert 0 < calls["_find_earliest"] <= 2 * steps * (event_windows.PART + 1)
    assert calls["_sure"] < 1.5 * outcome.wall_s / window_s + calls["_find_earliest"] + 2 * steps


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("straggler", ["constant", "exponential", "lognormal:0.5"])
@pytest.mark.parametrize("link", [Link(0.0, 0.0), Link(5e-3, 1e-9)])
def test_events_in_windows_are_those_one_by_one(
    name: str, straggler: str, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = Setting(600, 2, 0.1, parse(straggler), 1e6, link, servers=150, duplex=True, target=0.3)
    assert isinstance(event_windows.events_of(setting, EVERY[name](range(600))), EventWindows)
    outcome = simulated(EVERY[name], setting)
    monkeypatch.setattr(event_windows, "FEW", 600)
    assert simulated(EVERY[name], setting) == outcome


# Calls of Python functions for each gradient, which take most of the time of a simulation. What was counted, plus 1.
MOST_CALLS = {
    "bsp": 16.5, "ssp": 19.8, "asynchronous": 13.7, "half": 19.2, "partial": 19.0, "dssp": 22.8, "history": 20.7,
}  # fmt: skip


@pytest.mark.parametrize("name", EVERY)
def test_a_gradient_is_few_calls(name: str) -> None:
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    workers = 2 * event_windows.FEW
    link = Link(1e-5, 8e-11)
    setting = Setting(workers, 10, 0.1, parse("lognormal:0.5"), 1e6, link, servers=workers // 4, duplex=True)
    simulation = Simulation(EVERY[name](range(workers)), setting)
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        outcome = simulation.run()
    finally:
        sys.setprofile(before)
    assert calls / outcome.computed < MOST_CALLS[name]


def test_it_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_gradients, "BATCH", 10)
    told: list[int] = []
    outcome = simulated(Asynchronous, Setting(4, 25, progress=told.append))
    assert told == [10] * 9, "the last ones are known when it ends"
    assert outcome == simulated(Asynchronous, Setting(4, 25))


def test_asynchronous_gradients_are_as_old_as_there_are_others() -> None:
    outcome = simulated(Asynchronous, Setting(20, 100, 0.1, parse("lognormal:0.3")))
    mean = sum(age * count for age, count in outcome.staleness.items()) / outcome.gradients
    assert mean == pytest.approx(19, rel=0.05)


def test_staleness_costs_learning_and_more_workers_quieten_the_noise() -> None:
    """With a large step, old gradients overshoot; with noise, more workers end lower."""
    bold = Setting(16, 60, 0.1, parse("lognormal:0.3"), lr=1.8, noise=0.0)
    assert simulated(BSP, bold).final_loss < 1e-6
    assert simulated(Asynchronous, bold).final_loss > 1e-3
    loud = Setting(1, 300, 0.1, noise=2.0)
    assert simulated(BSP, replace(loud, workers=64)).final_loss < simulated(BSP, loud).final_loss / 10


def test_history_does_not_wait_for_the_late_for_ever() -> None:
    setting = Setting(4, 100, 0.1, Slow(worker=3, factor=10))
    history = simulated(lambda workers: History(workers, 3, patience=0.5), setting)
    assert history.wall_s / 100 == pytest.approx(0.15, rel=0.15)
    assert simulated(BSP, setting).wall_s / 100 == pytest.approx(1.0)


@settings(max_examples=25)
@given(
    st.sampled_from(sorted(EVERY)),
    st.integers(1, 12),
    st.integers(1, 25),
    st.sampled_from(["constant", "exponential", "lognormal:0.5", "pareto:2", "slow:worker=0,factor=5"]),
    st.sampled_from([Link(0.0, 0.0), Link(1e-3, 0.0), Link(1e-4, 1e-8)]),
    st.integers(1, 3),
    st.booleans(),
    st.integers(0, 9),
    st.booleans(),
)
def test_it_is_the_ledgers_simulation_to_the_last_digit(
    name: str, workers: int, steps: int, straggler: str, link: Link, servers: int, duplex: bool, seed: int, many: bool
) -> None:
    """With constant times many events happen at once, so their order counts, too."""
    setting = Setting(workers, steps, 0.1, parse(straggler), 2e6, link, servers, duplex, seed=seed, target=0.3)
    expected = LedgerSimulation(EVERY[name](range(workers)), setting).run()
    with pytest.MonkeyPatch.context() as patch:
        if many:  # as with thousands of workers: computations in two parts, x computed in several batches
            patch.setattr(event_windows, "FEW", 0)
            patch.setattr(late_gradients, "BATCH", 7)
        assert simulated(EVERY[name], setting) == expected


# Seconds, seconds waited, final loss; gradients applied, begun and dropped; sums of staleness and lead. Recorded
# before the simulator drove the servers' `Ledger`, and the same since; of half since its pauses are SplitMix64's.
RECORDED = {
    ("bsp", 0): (4.523321020515161, 16.231085471509047, 0.05122923584749292, 140, 140, 0, 0, 0),
    ("bsp", 1): (3.798995555672281, 13.457245626549348, 0.04121440452690149, 140, 140, 0, 0, 0),
    ("ssp", 0): (2.3679133240466643, 1.6364047431147168, 0.05023568128597681, 140, 140, 0, 760, 242),
    ("ssp", 1): (2.212718330938762, 2.091441867911538, 0.041037379478701286, 140, 140, 0, 730, 245),
    ("asynchronous", 0): (2.084605823538985, 0.0, 0.04993713199279588, 140, 140, 0, 819, 428),
    ("asynchronous", 1): (2.212718330938762, 0.0, 0.04127676973589324, 140, 140, 0, 819, 357),
    ("half", 0): (2.8070145499885886, 4.56567654736817, 0.04967076321913481, 140, 140, 0, 775, 241),
    ("half", 1): (2.77767048253572, 4.990666814162096, 0.04097119280283657, 140, 140, 0, 756, 249),
    ("partial", 0): (3.431690785616303, 8.729024607464204, 0.05185796515330012, 120, 140, 20, 0, 114),
    ("partial", 1): (2.8428938810015945, 7.162858463283559, 0.0443095948746388, 120, 137, 17, 0, 126),
    ("dssp", 0): (2.7775411346702903, 4.162506124754732, 0.05015969648547318, 140, 140, 0, 648, 125),
    ("dssp", 1): (2.877862945406265, 6.564142562178057, 0.04110339684184178, 140, 140, 0, 593, 131),
    ("history", 0): (4.161597039134945, 13.718861610330435, 0.0546785823633829, 132, 140, 8, 0, 48),
    ("history", 1): (3.5923653357775724, 11.975505646383736, 0.04191860209720247, 135, 139, 4, 1, 36),
}


@pytest.mark.parametrize(("name", "seed"), RECORDED)
def test_outcomes_are_as_recorded(name: str, seed: int) -> None:
    found = simulated(EVERY[name], Setting(7, 20, 0.1, parse("lognormal:0.8"), 1e5, Link(1e-3, 1e-8), 2, seed=seed))
    sums = [sum(value * times for value, times in histogram.items()) for histogram in (found.staleness, found.lead)]
    figures = (found.wall_s, found.wait_s, found.final_loss, found.gradients, found.computed, found.dropped, *sums)
    assert figures == pytest.approx(RECORDED[name, seed], rel=1e-9)
