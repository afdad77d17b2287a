"""The learning rate follows the error, and steps that raise the error are undone; or it follows the gradients."""

from __future__ import annotations

import math

import pytest
import torch

from farandole.data_parallel.bold_driver import DOWN, RELAX, UP, BoldDriver
from farandole.data_parallel.gradient_agreement import GradientAgreement


def rates(losses: list[float], lr: float = 0.1) -> list[float]:
    driver = BoldDriver(lr)
    return [driver.observe(loss) / lr for loss in losses]


def undone(losses: list[float]) -> list[bool]:
    driver = BoldDriver(0.1)
    return [driver.observe(loss) > 0 and driver.undo for loss in losses]


def test_the_first_loss_is_compared_with_nothing() -> None:
    assert rates([3.0]) == [1.0]


def test_up_while_it_falls_down_when_it_rises() -> None:
    assert rates([3.0, 2.0, 1.0, 2.0]) == pytest.approx([1, UP, UP**2, UP**2 * DOWN])
    assert undone([3.0, 2.0, 1.0, 2.0]) == [False, False, False, True]


def test_after_each_undoing_what_is_compared_with_is_a_tenth_higher() -> None:
    """1.0 was an easy window: 1.2 is undone twice, and is below 1.1² · 1.0 then."""
    assert undone([1.0, 1.2, 1.2, 1.2, 2.0]) == [False, True, True, False, True]
    assert rates([1.0, 1.2, 1.2, 1.2]) == pytest.approx([1, DOWN, DOWN**2, DOWN**2 * UP])
    assert RELAX == 1.1


def test_what_rises_within_the_noise_changes_nothing() -> None:
    assert rates([1.0, 1.01, 1.0099]) == pytest.approx([1, 1, UP])
    assert not any(undone([1.0, 1.01, 1.0099]))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_is_undone_as_often_as_it_comes(bad: float) -> None:
    assert undone([bad, bad, 1.0, bad]) == [True, True, False, True], "the first window, too"
    assert rates([1.0, bad, bad, 0.9]) == pytest.approx([1, DOWN, DOWN**2, DOWN**2 * UP])


def test_it_goes_on_from_rate_and_loss() -> None:
    first = BoldDriver(0.1)
    for loss in (2.0, 3.0, 2.5, 2.0):
        second = BoldDriver(first.lr, first.before)
        assert second.observe(loss) == first.observe(loss)
        assert (second.before, second.undo) == (first.before, first.undo)


def test_it_finds_the_minimum_from_a_rate_that_diverges_and_never_goes_far() -> None:
    """w² from w = 1, with a rate above 1, at which plain descent grows for ever: the rule undoes each rise."""
    driver, w, accepted, furthest = BoldDriver(3.0), 1.0, 1.0, 1.0
    for _ in range(60):
        rate = driver.observe(w * w)
        if driver.undo:
            w = accepted
        accepted = w
        w -= rate * 2 * w
        furthest = max(furthest, abs(accepted))
    assert abs(accepted) < 1e-3
    assert furthest == 1.0


def windows(gradients: list[list[float]], length: int = 2) -> list[float]:
    """The factor by which the rate changes after each window."""
    agreement = GradientAgreement(torch.zeros(2))
    factors = []
    for number, gradient in enumerate(gradients, 1):
        agreement.note(torch.tensor(gradient))
        if number % length == 0:
            factors.append(agreement.conclude(1.0))
    return factors


def test_gradients_that_agree_raise_the_rate_and_those_that_point_back_lower_it() -> None:
    assert windows([[1, 0], [2, 0]]) == [UP]
    assert windows([[1, 0], [-2, 0]]) == [DOWN]
    assert windows([[1, 0], [0, 1]]) == [1.0]
    assert windows([[1, 0], [0, 0]]) == [1.0], "nothing to compare"
    assert windows([[1, 0], [1, 0], [-1, 0], [-1, 0]]) == [UP, 1.0], "also over the end of a window: −1 + 1 is 0"


def test_how_long_gradients_are_does_not_matter() -> None:
    path = torch.randn(20, 2, generator=torch.Generator().manual_seed(1)).tolist()
    long = [[1e30 * x for x in gradient] for gradient in path]
    assert windows(path, 4) == windows(long, 4)
    assert len(set(windows(path, 4))) > 1


def test_the_agreement_is_the_cosine_of_successive_gradients() -> None:
    agreement = GradientAgreement(torch.zeros(2))
    for gradient in ([1.0, 0.0], [1.0, 1.0], [0.0, 3.0]):
        agreement.note(torch.tensor(gradient))
    assert agreement.agreement == pytest.approx((1 + 3) / (math.sqrt(2) + 3 * math.sqrt(2)))
    other = GradientAgreement(torch.zeros(2))
    other.past.copy_(agreement.past)
    other.restore(agreement.state())
    for each in (agreement, other):
        each.note(torch.tensor([-1.0, 0.5]))
    assert agreement.agreement == other.agreement
    assert agreement.conclude(1.0) == other.conclude(1.0)


@pytest.mark.parametrize("rate", [0.1, 2.1])
def test_by_gradients_it_finds_a_rate_that_converges(rate: float) -> None:
    """(x² + 0.01y²)/2: x grows with a rate above 2, and y needs 3,000 steps with 0.1."""
    w, agreement = torch.tensor([1.0, 1.0]), GradientAgreement(torch.zeros(2))
    for step in range(1, 1001):
        gradient = w * torch.tensor([1.0, 0.01])
        agreement.note(gradient)
        w -= rate * gradient
        if step % 10 == 0:
            rate = agreement.conclude(rate)
    assert w.norm() < 0.05
