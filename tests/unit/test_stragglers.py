"""Distributions of times: order statistics against known figures and against samples, the grammar, the fit."""

from __future__ import annotations

import numpy as np
import pytest

from farandole.cost.straggler_fit import fitted
from farandole.cost.stragglers import (
    KINDS,
    Constant,
    LogNormal,
    Pareto,
    ShiftedExponential,
    Straggler,
    harmonic,
    parse,
    written,
)
from farandole.errors import UsageError

ONE_OF_EACH = [
    "constant",
    "exponential",
    "shifted-exponential:shift=0.5",
    "lognormal:0.5",
    "pareto:3.5",
    "transient:factor=3,share=0.1",
    "slow:worker=1,factor=3",
]


def test_the_exponential_is_harmonic_numbers() -> None:
    assert parse("exponential").expected_maximum(8) == pytest.approx(2.718, abs=5e-4)
    assert parse("exponential").expected(7, 8) == pytest.approx(1.718, abs=5e-4)
    assert harmonic(0) == 0


@pytest.mark.parametrize(("workers", "maximum"), [(4, 1.57), (8, 1.89), (16, 2.22), (32, 2.57)])
def test_the_slowest_of_some_lognormal_ones(workers: int, maximum: float) -> None:
    assert parse("lognormal:0.5").expected_maximum(workers) == pytest.approx(maximum, abs=0.01)


@pytest.mark.parametrize("text", ONE_OF_EACH)
@pytest.mark.parametrize(("k", "n"), [(1, 1), (1, 4), (3, 4), (4, 4), (6, 8), (8, 8)])
def test_samples_agree_with_what_is_expected(text: str, k: int, n: int) -> None:
    straggler = parse(text)
    times = straggler.sample(np.random.default_rng(1), 40_000, n)
    assert times.shape == (40_000, n)
    kth = np.sort(times, axis=1)[:, k - 1]
    assert kth.mean() == pytest.approx(straggler.expected(k, n), abs=5 * kth.std() / 200 + 1e-9)
    if k == n == 1:
        assert straggler.expected(1, 1) == pytest.approx(straggler.mean, rel=1e-6)


@pytest.mark.parametrize("straggler", [ShiftedExponential(0.3), Pareto(2.5)])
@pytest.mark.parametrize(("k", "n"), [(1, 2), (2, 2), (7, 8), (10_000, 10_000)])
def test_the_formula_is_what_quadrature_gives(straggler: Straggler, k: int, n: int) -> None:
    by_quadrature = Straggler.expected(straggler, k, n)
    assert by_quadrature == pytest.approx(straggler.expected(k, n), rel=1e-4)


def test_the_last_takes_longer_than_the_one_before_and_more_of_them_longer_still() -> None:
    lognormal = LogNormal(0.5)
    expected = [lognormal.expected(k, 1000) for k in (1, 500, 900, 999, 1000)]
    assert expected == sorted(expected)
    assert lognormal.expected_maximum(10_000) > expected[-1]


def test_same_seed_same_times() -> None:
    first, again, other = (parse("pareto:2").sample(np.random.default_rng(seed), 3, 4) for seed in (5, 5, 6))
    assert (first == again).all()
    assert (first != other).any()


@pytest.mark.parametrize(
    "text",
    ["", "gamma", "constant:1", "lognormal", "lognormal:", "lognormal:x", "lognormal:mu=1", "lognormal:0",
     "lognormal:nan", "lognormal:3.1", "pareto:1", "pareto:inf", "shifted-exponential:1", "shifted-exponential:-0.1",
     "transient:factor=3", "transient:3", "transient:factor=0.5,share=0.1", "transient:factor=3,share=0",
     "transient:factor=3,share=1.1", "transient:factor=inf,share=0.1", "slow:worker=-1,factor=3",
     "slow:worker=1.5,factor=3", "slow:worker=1,factor=0.9", "slow:worker=1,factor=inf", "exponential:2"],
)  # fmt: skip
def test_a_wrong_text_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UsageError) as error:
        parse(text)
    assert "\n" not in str(error.value)
    assert text in str(error.value)


@pytest.mark.parametrize(
    ("text", "mean"),
    [("shifted-exponential:0", 1), ("lognormal:3", 1), ("pareto:1.01", 1), ("transient:factor=1,share=1", 1),
     ("transient:factor=2,share=1", 2), ("slow:worker=0,factor=1", 1)],
)  # fmt: skip
def test_the_last_numbers_that_fit(text: str, mean: float) -> None:
    assert parse(text).mean == mean


@pytest.mark.parametrize("straggler", [ShiftedExponential(), ShiftedExponential(0.3), LogNormal(0.5), Pareto(2.5)])
def test_a_quantile_is_the_time_that_is_exceeded_so_rarely(straggler: Straggler) -> None:
    times = straggler.sample(np.random.default_rng(2), 20_000, 1)
    for rare in (0.9, 0.5, 0.1):
        assert straggler.exceeds(straggler.quantile(rare)) == pytest.approx(rare)
        assert (times > straggler.quantile(rare)).mean() == pytest.approx(rare, abs=5 * 0.5 / 20_000**0.5)
    for time in (-1.0, 0.0, 0.99 * float(times.min())):
        assert straggler.exceeds(time) == pytest.approx(1, abs=2e-3), "the least of 20,000"


def test_it_is_written_to_four_digits() -> None:
    assert written(LogNormal(0.123456)) == "lognormal:sigma=0.1235"
    assert written(parse("slow:worker=12345,factor=3")) == "slow:worker=12345,factor=3"


@pytest.mark.parametrize("text", ONE_OF_EACH)
def test_what_is_written_is_read_as_the_same(text: str) -> None:
    assert parse(written(parse(text))) == parse(text)


def test_each_kind_is_tried_here() -> None:
    assert {text.partition(":")[0] for text in ONE_OF_EACH} == KINDS.keys()


@pytest.mark.parametrize("text", ["shifted-exponential:0.5", "lognormal:0.5", "pareto:2.5"])
def test_a_fit_finds_where_times_came_from(text: str) -> None:
    straggler = parse(text)
    fit = fitted(0.2 * straggler.sample(np.random.default_rng(3), 500, 8))
    assert type(fit.straggler) is type(straggler)
    (found,), (true,) = vars(fit.straggler).values(), vars(straggler).values()
    assert found == pytest.approx(true, rel=0.1)
    assert fit.mean_s == pytest.approx(0.2, rel=0.1)
    assert fit.distance < 0.03


@pytest.mark.parametrize("times", [[1.0, 1.00001, 1.00002], [1e-9, 1e-9, 1.0], [1.0, 2.0, 1e9]])
def test_a_fit_of_whatever_times_can_be_written_and_read(times: list[float]) -> None:
    assert isinstance(parse(written(fitted(times).straggler)), Straggler)


def test_times_that_do_not_scatter_are_constant() -> None:
    assert fitted([0.1, 0.1, 0.1]).straggler == Constant()
    with pytest.raises(UsageError, match="two or more"):
        fitted([0.1])
