"""The learning rate equals that of torch's schedulers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.optim import lr_scheduler

from farandole.data_parallel.learning_rate import BETTER, LOWER, PATIENCE, LearningRate
from farandole.data_parallel.options import OptimizerOptions
from farandole.errors import UsageError

STEPS, WARM_UP = 40, 8


def optimizer() -> torch.optim.SGD:
    return torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.8)


def rates_of(schedule: Any, optimizer: torch.optim.SGD) -> list[float]:
    found = []
    for _ in range(STEPS):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    return found


def test_warm_up_then_cosine() -> None:
    theirs = optimizer()
    warm_up = lr_scheduler.LinearLR(theirs, start_factor=1 / WARM_UP, total_iters=WARM_UP - 1)
    cosine = lr_scheduler.CosineAnnealingLR(theirs, T_max=STEPS - WARM_UP)
    expected = rates_of(lr_scheduler.SequentialLR(theirs, [warm_up, cosine], [WARM_UP]), theirs)
    rate = LearningRate(0.8, STEPS, WARM_UP, "cosine")
    assert [rate.at(step) for step in range(STEPS)] == pytest.approx(expected, rel=1e-9)


def test_without_a_schedule_it_stays() -> None:
    rate = LearningRate(0.8, STEPS)
    rate.observe(1.0)
    rate.observe(2.0)
    assert {rate.at(step) for step in range(STEPS)} == {0.8}


@settings(deadline=None)
@given(st.lists(st.sampled_from([0.5, 0.9, 1.0, 1.0001, 2.0, float("nan"), float("inf")]), max_size=40))
def test_plateau(losses: list[float]) -> None:
    theirs = optimizer()
    schedule = lr_scheduler.ReduceLROnPlateau(theirs, factor=LOWER, patience=PATIENCE, threshold=1 - BETTER, eps=0)
    rate = LearningRate(0.8, STEPS, schedule="plateau")
    for loss in losses:
        schedule.step(loss)
        rate.observe(loss)
        assert rate.at(0) == pytest.approx(theirs.param_groups[0]["lr"], rel=1e-9)


@pytest.mark.parametrize(("lr_batch", "expected"), [(None, 0.3), (64, 0.3), (16, 1.2), (256, 0.075)])
def test_linear_scaling(lr_batch: int | None, expected: float) -> None:
    assert LearningRate.of(OptimizerOptions(lr=0.3, batch=64, lr_batch=lr_batch)).at(0) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"steps": 10, "warm_up": 10}, "less than the 10 steps"),
        ({"lr_schedule": "plateau", "background_metrics": True}, "without --background-metrics"),
    ],
)
def test_what_it_refuses(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        LearningRate.of(OptimizerOptions(**options))
