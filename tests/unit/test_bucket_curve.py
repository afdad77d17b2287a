"""The measured curve of bucket sizes: its predictions by hand, and the verdicts of curves of other shapes."""

from __future__ import annotations

from typing import Any

import pytest

from farandole.claims import bucket_curve
from farandole.claims.bucket_curve import CLAIMS, DEEP_LAYERS, RANKS, SIZES_KB, curve, paced_layers, predicted
from farandole.claims.claim import verdict
from farandole.claims.trainings import Trained
from farandole.collectives.costs import Link
from farandole.cost import paced_task
from farandole.data_parallel.buckets import cut

STEP_S, LINK = 0.192, Link(1e-3, 8 / 150e6)
RING_S = 1.5 * paced_task.nbytes(paced_task.DEEP_WIDE, DEEP_LAYERS) * LINK.beta  # the bytes of all, on 4 ranks
MESSAGES = 2 * (RANKS - 1)


def test_the_sizes_are_whole_layers_from_each_tensor_to_all() -> None:
    lengths = [numbers for numbers, _ in paced_layers()]
    assert lengths == [each.numel() for each in paced_task.deep_wide().model().parameters()]
    assert [len(cut(lengths, 250 * size)) for size in SIZES_KB] == [32, 16, 8, 4, 2, 1]


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (1, STEP_S / 3 + 8e-3 + 32 * MESSAGES * 1e-3 + RING_S),  # the link is never idle from the first layer on
        (62, STEP_S / 3 + 8e-3 + 16 * MESSAGES * 1e-3 + RING_S),
        (124, STEP_S + MESSAGES * 1e-3 + RING_S / 8),  # only the last one's all-reduce is exposed: 15.92 ms for 16 ms
        (248, STEP_S + MESSAGES * 1e-3 + RING_S / 4),
        (496, STEP_S + MESSAGES * 1e-3 + RING_S / 2),
        (992, STEP_S + MESSAGES * 1e-3 + RING_S),
    ],
)
def test_a_step_is_predicted_as_by_hand(size: int, expected: float) -> None:
    assert predicted(size, STEP_S, LINK) == pytest.approx(expected, abs=3e-4)


def measured(monkeypatch: pytest.MonkeyPatch, seconds: Any) -> dict[str, Any]:
    """Return the claim's figures where a step with a bucket size takes `seconds(size, overlap)`."""
    order: list[str] = []

    def calibrated() -> tuple[Link, float]:
        order.append("calibrated")
        return LINK, STEP_S

    def trained(scenario: str, ranks: int, *, bucket_kb: int, overlap: bool, **options: Any) -> list[Trained]:
        order.append("measured")
        took = seconds(bucket_kb, overlap)
        lines = [{"wall_s": 9 + step * took + (5 if step > 6 else 0)} for step in range(12)]  # with a pause
        return [Trained(None, [], lines)]  # type: ignore[arg-type]

    monkeypatch.setattr(bucket_curve, "calibrated", calibrated)
    monkeypatch.setattr(bucket_curve, "trained", trained)
    found = curve()
    assert order == ["calibrated", *["measured"] * (len(SIZES_KB) + 1)]
    assert found.picture
    assert [size for size, _ in found.picture.lines["predicted"]] == list(SIZES_KB)
    return dict(found.figures)


def test_what_is_as_predicted_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = measured(
        monkeypatch, lambda size, overlap: predicted(size, STEP_S, LINK) * (1 if overlap else 1.5) * 1.02
    )
    assert verdict(CLAIMS[0].rule, figures) == "holds"
    assert figures["largest error of a prediction, percent"] == pytest.approx(2 / 1.02)
    assert figures["the best size, kB"] == 124


@pytest.mark.parametrize("slope", [-1, 0, 1])
def test_a_curve_without_a_best_size_between_does_not_hold(slope: int, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = measured(monkeypatch, lambda size, overlap: 0.3 + slope * 0.2 * SIZES_KB.index(size) / 5)
    assert verdict(CLAIMS[0].rule, figures) == "does not hold"
