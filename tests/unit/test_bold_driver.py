"""The learning rate goes up a little while the loss falls, and down by half when it rises."""

from __future__ import annotations

import math

import pytest

from farandole.data_parallel.bold_driver import DOWN, UP, BoldDriver


def rates(losses: list[float], lr: float = 0.1) -> list[float]:
    driver = BoldDriver(lr)
    return [driver.observe(loss) / lr for loss in losses]


def test_the_first_loss_is_compared_with_nothing() -> None:
    assert rates([3.0]) == [1.0]


def test_up_while_it_falls_down_when_it_rises() -> None:
    assert rates([3.0, 2.0, 1.0, 2.0, 1.5]) == pytest.approx([1, UP, UP**2, UP**2 * DOWN, UP**3 * DOWN])


def test_what_rises_within_the_noise_changes_nothing() -> None:
    assert rates([1.0, 1.01, 1.0099]) == pytest.approx([1, 1, UP])


def test_a_loss_that_is_no_number_is_a_rise_and_is_not_compared_with() -> None:
    assert rates([1.0, math.nan, 0.9]) == pytest.approx([1, DOWN, DOWN * UP])


def test_it_goes_on_from_rate_and_loss() -> None:
    first = BoldDriver(0.1)
    first.observe(2.0)
    second = BoldDriver(first.lr, first.before)
    assert second.observe(3.0) == first.observe(3.0) == 0.05


def test_it_finds_the_minimum_from_a_rate_that_diverges() -> None:
    """w² from w = 1: with a rate above 1 plain descent grows for ever."""
    driver, w = BoldDriver(3.0), 1.0
    for _ in range(60):
        w -= driver.observe(w * w) * 2 * w
    assert abs(w) < 1e-3
