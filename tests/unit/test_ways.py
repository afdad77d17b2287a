"""What each way of synchronising is predicted to cost: against the formulas, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from farandole.collectives.costs import Link
from farandole.cost.options import SyncCostOptions, check
from farandole.cost.stragglers import Times
from farandole.cost.ways import DRAWS, WAYS, Calibration, efficiency, gossip_pace, predicted
from farandole.errors import UsageError

ALPHA, BETA, NBYTES, PERIOD = 1e-3, 1e-8, 1_000_000, 8
MESSAGE = ALPHA + NBYTES * BETA


def calibration(times: Times, buckets: list[tuple[int, float]] | None = None) -> Calibration:
    encoded = {"float16": NBYTES // 2, "top-k": 4000}
    return Calibration(Link(ALPHA, BETA), NBYTES, dict.fromkeys(WAYS, times), encoded, buckets or [], PERIOD)


def steady(*seconds: float) -> Times:
    """Ranks that always take as long, each."""
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
    assert {way: predicted(way, known, ranks).comm_s for way in right} == pytest.approx(right)


def test_a_steady_slow_rank_is_waited_for_by_all_ways() -> None:
    known = calibration(steady(0.1, 0.1, 0.3, 0.1))
    costs = {way: predicted(way, known, 4).compute_s for way in WAYS}
    assert costs.pop("large-batch") == pytest.approx(0.3 / PERIOD)  # a step of which is of so many batches
    assert costs == pytest.approx(dict.fromkeys(costs, 0.3), rel=0.01)


def test_who_is_slow_by_turns_is_waited_for_less_over_several_steps() -> None:
    turns = np.random.default_rng(1).choice([0.1, 0.5], p=[0.8, 0.2], size=(200, 4))
    known = calibration(turns)
    local, gossip, ring_ = (predicted(way, known, 4).compute_s for way in ("local-sgd", "gossip", "ring"))
    assert ring_ == pytest.approx(0.1 + 0.4 * (1 - 0.8**4), rel=0.1)
    assert turns.mean() < local < 0.8 * ring_
    assert turns.mean() < gossip <= ring_ * 1.001


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


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
def test_no_way_is_faster_than_without_waiting_and_messages(way: str, ranks: int) -> None:
    """Among 400 drawn steps quick ones may be many: the ideal is that of the same draw."""
    times = np.random.default_rng(ranks).choice([0.1, 0.5], p=[0.9, 0.1], size=(30, ranks))
    free = replace(calibration(times, [(NBYTES, 0.1)]), link=Link(0, 0))
    part = efficiency(way, free, ranks)
    assert part == pytest.approx(1) if ranks == 1 else 0.3 < part < 1
    assert efficiency(way, replace(free, link=Link(ALPHA, BETA)), ranks) <= part


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
        (SyncCostOptions(ways=("ring", "ring")), "--ways names one twice"),
        (SyncCostOptions(ways=()), "--ways names none"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: SyncCostOptions, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check(options)


def test_all_ways_can_be_chosen() -> None:
    assert set(SyncCostOptions().ways) == set(WAYS)
