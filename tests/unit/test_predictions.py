"""The predicted cost of each method of synchronising, against the formulas, by hand."""

from __future__ import annotations

from dataclasses import replace
from pkgutil import resolve_name

import numpy as np
import pytest

from farandole.cli.run import with_present_names
from farandole.collectives.costs import Link
from farandole.cost.methods import METHODS
from farandole.cost.options import SyncCostOptions, check
from farandole.cost.predictions import DRAWS, Calibration, efficiency, gossip_pace, predicted
from farandole.cost.stragglers import Times
from farandole.errors import UsageError
from farandole.runtime import choices
from farandole.runtime.command_line import parse

ALPHA, BETA, NBYTES, PERIOD = 1e-3, 1e-8, 1_000_000, 8
MESSAGE = ALPHA + NBYTES * BETA


def calibration(times: Times, buckets: list[tuple[int, float]] | None = None) -> Calibration:
    encoded = {"float16": NBYTES // 2, "top-k": 4000}
    return Calibration(Link(ALPHA, BETA), NBYTES, dict.fromkeys(METHODS, times), encoded, buckets or [], PERIOD)


def steady(*seconds: float) -> Times:
    """Return ranks with constant times."""
    return np.tile(seconds, (10, 1))


def ring(ranks: int, nbytes: float = NBYTES) -> float:
    return 2 * (ranks - 1) * (ALPHA + nbytes / ranks * BETA)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
def test_messages_are_those_of_the_method(ranks: int) -> None:
    known = calibration(steady(*[0.1] * ranks))
    right = {
        "ring": ring(ranks),
        "large-batch": ring(ranks) / PERIOD,
        "local-sgd": ring(ranks) / PERIOD,
        "float16": ring(ranks, NBYTES / 2),
        "top-k": (ranks - 1) * (ALPHA + 4000 * BETA),
        "central": {1: 0, 2: 2, 3: 3, 4: 5, 7: 11}[ranks] * MESSAGE,
        "gossip": min(2, ranks - 1) * MESSAGE,
    }
    assert {method: predicted(method, known, ranks).comm_s for method in right} == pytest.approx(right)


def test_every_method_waits_for_a_steadily_slow_rank() -> None:
    known = calibration(steady(0.1, 0.1, 0.3, 0.1))
    costs = {method: predicted(method, known, 4).compute_s for method in METHODS}
    assert costs.pop("large-batch") == pytest.approx(0.3 / PERIOD)  # one step is of that many batches
    assert costs == pytest.approx(dict.fromkeys(costs, 0.3), rel=0.01)


def test_several_steps_together_wait_less_for_ranks_that_are_sometimes_slow() -> None:
    sometimes = np.random.default_rng(1).choice([0.1, 0.5], p=[0.8, 0.2], size=(200, 4))
    known = calibration(sometimes)
    local, gossip, ring_ = (predicted(method, known, 4).compute_s for method in ("local-sgd", "gossip", "ring"))
    assert ring_ == pytest.approx(0.1 + 0.4 * (1 - 0.8**4), rel=0.1)
    assert sometimes.mean() < local < 0.8 * ring_
    assert sometimes.mean() < gossip <= ring_ * 1.001


def test_rounds_longer_than_what_was_drawn_are_predicted_too() -> None:
    known = replace(calibration(steady(0.1, 0.2)), period=500)
    assert predicted("local-sgd", known, 2).compute_s == pytest.approx(0.2)


def test_gossip_waits_for_its_neighbours_alone() -> None:
    times = np.full((2, 5), 1.0)
    times[0, 0] = 10.0
    assert gossip_pace(times) == pytest.approx((10 + 1) / 2)
    times[1, 2] = 10.0  # two places away, it has already begun when the other is done
    assert gossip_pace(times) == pytest.approx((1 + 10) / 2)
    times[1, 2], times[1, 1] = 1.0, 10.0  # a neighbour waits first
    assert gossip_pace(times) == pytest.approx((10 + 10) / 2)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
def test_no_method_is_faster_than_without_waiting_and_messages(method: str, ranks: int) -> None:
    """Among 400 drawn steps quick ones may be many: the ideal is that of the same draw."""
    times = np.random.default_rng(ranks).choice([0.1, 0.5], p=[0.9, 0.1], size=(30, ranks))
    free = replace(calibration(times, [(NBYTES, 0.1)]), link=Link(0, 0))
    part = efficiency(method, free, ranks)
    assert part == pytest.approx(1) if ranks == 1 else 0.3 < part < 1
    assert efficiency(method, replace(free, link=Link(ALPHA, BETA)), ranks) <= part


def test_what_is_hidden_behind_the_computation_costs_nothing() -> None:
    times = steady(1.0, 1.0)
    first, last = (400_000, 0.5), (100_000, 1.0)
    hidden = predicted("overlapped", calibration(times, [first, last]), 2)
    assert hidden.comm_s == pytest.approx(ring(2, 100_000)), "only the last bucket's is left"
    late = predicted("overlapped", calibration(times, [(400_000, 0.999), last]), 2)
    assert late.comm_s == pytest.approx(0.999 + ring(2, 400_000) + ring(2, 100_000) - 1.0)


def test_more_workers_are_more_of_the_same() -> None:
    known = calibration(steady(0.1, 0.2))
    drawn = known.drawn("ring", 5)
    assert drawn.shape == (DRAWS, 5)
    assert list(drawn[0]) == [0.1, 0.2, 0.1, 0.2, 0.1]
    assert predicted("ring", known, 512).comm_s == pytest.approx(ring(512))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (SyncCostOptions(steps=20), "--steps 20 is no multiple of --period 8: give 16"),
        (SyncCostOptions(steps=3), "give 8"),
        (SyncCostOptions(methods=("ring", "ring")), "--methods names one twice"),
        (SyncCostOptions(methods=()), "--methods names none"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: SyncCostOptions, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check(options)


@pytest.mark.parametrize("method", METHODS)
def test_a_row_names_functions_that_exist(method: str) -> None:
    row = METHODS[method]
    assert callable(resolve_name(row.prediction))
    assert callable(resolve_name(row.strategy))


def test_options_by_their_former_names_are_accepted_with_one_line_of_advice_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    monkeypatch.setattr(choices, "advise", said.append)
    options = parse(SyncCostOptions, ["--ways", "ring", "gossip", "--rehearsal=7", "--steps", "16"])
    assert options == SyncCostOptions(methods=("ring", "gossip"), calibration_steps=7, steps=16)
    assert said == [
        "--ways is called --methods now; the old word is still accepted",
        "--rehearsal is called --calibration-steps now; the old word is still accepted",
    ]


def test_the_command_line_replaces_former_names_in_its_own_scenario_alone() -> None:
    given = ["run", "sync_cost", "-n", "2", "--ways", "ring"]
    assert with_present_names(given) == ["run", "sync_cost", "-n", "2", "--methods", "ring"]
    for others in (["run", "sync_sgd", "--ways", "ring"], ["compare", "sync_cost", "--ways"], ["run"], []):
        assert with_present_names(others) == others
