"""Update rules against torch.optim, and the guarantees of corrections, averaging and top-k."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from farandole.parameter_server import choices
from farandole.parameter_server.core.corrections import DelayCompensated, StalenessAware
from farandole.parameter_server.core.top_k import TopK
from farandole.parameter_server.core.update_rules import (
    SGD,
    Adagrad,
    Adam,
    Add,
    Blend,
    Momentum,
    Twice,
    UpdateRule,
    memory,
)
from farandole.parameter_server.core.updates import UPDATES
from farandole.parameter_server.options import PolicyOptions

LR = 0.07
PAIRS: dict[str, tuple[Callable[[np.ndarray], UpdateRule], Callable[..., torch.optim.Optimizer]]] = {
    "sgd": (lambda values: SGD(LR), lambda p: torch.optim.SGD(p, lr=LR)),
    "momentum": (lambda values: Momentum(values, LR, 0.8), lambda p: torch.optim.SGD(p, lr=LR, momentum=0.8)),
    "adagrad": (lambda values: Adagrad(values, LR), lambda p: torch.optim.Adagrad(p, lr=LR)),
    "adam": (lambda values: Adam(values, LR), lambda p: torch.optim.Adam(p, lr=LR)),
}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("in_parts", [False, True])
def test_a_rule_is_torchs(name: str, in_parts: bool) -> None:
    """Dense, and cut into a range and the remaining rows by number: the same, step by step."""
    make_rule, make_optimizer = PAIRS[name]
    random = np.random.default_rng(1)
    values = random.normal(size=(20, 3))
    parameter = torch.nn.Parameter(torch.from_numpy(values.copy()))
    optimizer, rule = make_optimizer([parameter]), make_rule(values)
    for _ in range(12):
        gradient = random.normal(size=values.shape)
        parameter.grad = torch.from_numpy(gradient.copy())
        optimizer.step()
        rule.begin()
        for rows in (slice(0, 7), np.arange(7, 20)) if in_parts else (slice(0, 20),):
            rule.apply(values, rows, gradient[rows].copy(), 1.0)
        np.testing.assert_allclose(values, parameter.detach().numpy(), rtol=1e-12)


@pytest.mark.parametrize("name", PAIRS)
def test_rows_without_gradient_stay(name: str) -> None:
    values = np.ones((5, 2))
    rule = PAIRS[name][0](values)
    rule.begin()
    rule.apply(values, np.array([1, 4]), np.ones((2, 2)), 1.0)
    assert (values[[0, 2, 3]] == 1).all()
    assert (values[[1, 4]] != 1).all()


def test_momentum_keeps_nine_tenths_of_its_velocity_unless_told_otherwise() -> None:
    values = np.zeros(1)
    rule = Momentum(values, lr=1.0)
    for expected in (-1.0, -2.9):
        rule.begin()
        rule.apply(values, slice(None), np.ones(1), 1.0)
        assert values.item() == pytest.approx(expected)


def test_added_contributions_are_not_weighted() -> None:
    values = np.array([10.0, 20.0, 30.0])
    Add().apply(values, np.array([0, 2]), np.array([1.0, -2.0]), weight=0.25)
    assert values.tolist() == [11.0, 20.0, 28.0]


@pytest.mark.parametrize(("name", "arrays"), [("sgd", 0), ("momentum", 1), ("adagrad", 1), ("adam", 2)])
def test_a_rules_memory_is_all_that_a_twin_needs_to_continue(name: str, arrays: int) -> None:
    """A rule whose state is replaced by another's takes the same next step from the same values."""
    random = np.random.default_rng(2)
    one, other = (PAIRS[name][0](np.zeros(4)) for _ in range(2))
    values = random.normal(size=4)
    for rule in (one, other):  # the same number of updates each, with different gradients
        rule.begin()
        rule.apply(values.copy(), slice(None), random.normal(size=4), 1.0)
    assert len(memory(one)) == arrays
    assert all(array.shape == values.shape for array in memory(one).values())
    for key, array in memory(one).items():
        memory(other)[key][:] = array
    gradient, ends = random.normal(size=4), [values.copy(), values.copy()]
    for rule, end in zip((one, other), ends, strict=True):
        rule.begin()
        rule.apply(end, slice(None), gradient.copy(), 1.0)
    assert ends[0].tolist() == ends[1].tolist()


def test_blend_is_document_000s_formula() -> None:
    alpha, old = 0.3, np.array([10.0, 20.0])
    pushed = [np.array([1.0, 2.0]), np.array([3.0, 6.0])]
    values = old.copy()
    Blend(alpha).apply(values, slice(None), sum(0.5 * x for x in pushed), 1.0)
    np.testing.assert_allclose(values, (1 - alpha) / 2 * sum(pushed) + alpha * old)


def test_one_workers_blend_moves_by_its_part() -> None:
    values = np.array([10.0])
    Blend(0.0).apply(values, slice(None), 0.25 * np.array([2.0]), 0.25)
    assert values.tolist() == [8.0], "a quarter of the way from 10 to 2"


def aggregated_twice(lr: float, steps: int, **choice: bool) -> float:
    """Two nodes with f = w²/2, from w = 1, by document 000's round."""
    values = np.array([1.0])
    rule = Twice(values, lr, **choice)
    for _ in range(steps):
        w = values.copy()
        for second in (False, True):
            pushed = w - lr * values if second else w  # x = w − ηG, or the gradient
            rule.begin()
            rule.apply(values, slice(None), 0.5 * pushed + 0.5 * pushed, 1.0)
    return float(values[0])


def test_aggregating_twice_as_written_descends_twice() -> None:
    """From 1 with η = 0.1 to 0.8 instead of 0.9; at η = 1.5 it diverges, where one round converges."""
    assert aggregated_twice(0.1, 1) == aggregated_twice(0.1, 1, again=True) == pytest.approx(0.8)
    assert aggregated_twice(0.1, 5, again=True) == pytest.approx((1 - 2 * 0.1) ** 5)
    assert aggregated_twice(1.5, 10, again=True) == pytest.approx((1 - 2 * 1.5) ** 10)
    assert aggregated_twice(1.5, 10, again=False) == pytest.approx((1 - 1.5) ** 10)


def test_aggregating_the_parameters_of_one_descent_changes_nothing() -> None:
    assert aggregated_twice(0.1, 5, again=False) == pytest.approx((1 - 0.1) ** 5)


@pytest.mark.parametrize(("staleness", "factor"), [(0, 1.0), (1, 1.0), (2, 0.5), (8, 0.125)])
def test_staleness_aware_divides_the_rate(staleness: int, factor: float) -> None:
    corrected = StalenessAware().correct(np.ones(3), 1, staleness, np.zeros(3), slice(None))
    assert corrected.tolist() == [factor] * 3


def test_delay_compensation_is_nothing_without_delay_and_right_for_a_quadratic() -> None:
    values = np.array([1.0, -2.0])
    correction = DelayCompensated(0.5)
    correction.reads(3, values)
    gradient = np.array([2.0, 4.0])
    assert correction.correct(gradient, 3, 0, values, slice(None)).tolist() == gradient.tolist()
    values += [0.5, 0.25]  # others have updated them
    expected = gradient + 0.5 * gradient**2 * [0.5, 0.25]
    np.testing.assert_allclose(correction.correct(gradient, 3, 4, values, slice(None)), expected)
    assert (DelayCompensated.correct(_none(correction, values), gradient, 3, 4, values, slice(None)) == gradient).all()


def _none(correction: DelayCompensated, values: np.ndarray) -> DelayCompensated:
    """With strength 0 it is the plain asynchronous gradient."""
    off = DelayCompensated(0.0)
    off.reads(3, values * 7)
    return off


@given(st.integers(1, 40), st.floats(0.01, 1), st.integers(1, 8), st.integers(0, 10_000))
def test_top_k_loses_nothing(length: int, fraction: float, steps: int, seed: int) -> None:
    """Σ sent + residual = Σ gradients: exact on whole numbers."""
    random = np.random.default_rng(seed)
    top_k = TopK(length, fraction, np.dtype(np.float64))
    sent, total = np.zeros(length), np.zeros(length)
    for _ in range(steps):
        gradient = random.integers(-50, 50, length).astype(float)
        total += gradient
        before = top_k.residual + gradient
        entries, values = top_k.choose(gradient)
        assert len(entries) == max(1, round(fraction * length))
        assert (np.diff(entries) > 0).all()
        left = np.delete(np.abs(before), entries)
        assert not len(left) or np.abs(values).min() >= left.max()
        sent[entries] += values
    assert (sent + top_k.residual == total).all()


def test_what_top_k_keeps_and_sends_has_the_parameters_type() -> None:
    top_k = TopK(4, 0.5, np.dtype(np.float32))
    entries, values = top_k.choose(np.float32([1, -4, 3, 2]))
    assert (entries.tolist(), values.tolist(), top_k.residual.tolist()) == ([1, 2], [-4, 3], [1, 0, 0, 2])
    assert values.dtype == top_k.residual.dtype == np.float32


@pytest.mark.parametrize("name", UPDATES)
def test_a_row_makes_its_rule_and_its_correction_from_the_options(name: str) -> None:
    options = PolicyOptions(update=name, lr=0.5, momentum=0.8, alpha=0.3, compensation=0.1)
    rule, correction = choices.make_rule(options, np.zeros((5, 2))), choices.make_correction(options)
    for taken in UPDATES[name].rule_takes:
        if taken != "values" and name != "twice":
            assert getattr(rule, taken) == getattr(options, taken)
    assert {array.shape for array in memory(rule).values()} <= {(5, 2)}
    assert (correction is not None) == bool(UPDATES[name].correction)
    if isinstance(correction, DelayCompensated):
        assert correction.strength == 0.1
