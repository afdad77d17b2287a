"""Shares: how N samples are shared by K ranks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farandole.data.shares import equal_shares, proportional_shares, slices
from farandole.errors import UsageError

samples_and_ranks = st.integers(1, 64).flatmap(lambda ranks: st.tuples(st.integers(ranks, 5000), st.just(ranks)))


@given(samples_and_ranks)
def test_equal_shares_are_floor_and_floor_plus_one(given: tuple[int, int]) -> None:
    samples, ranks = given
    shares = equal_shares(samples, ranks)
    assert sum(shares) == samples
    assert shares == [samples // ranks + 1] * (samples % ranks) + [samples // ranks] * (ranks - samples % ranks)


@given(st.integers(1, 5000), st.lists(st.floats(0.01, 100), min_size=1, max_size=32))
def test_proportional_shares_are_complete_and_close(samples: int, capabilities: list[float]) -> None:
    samples = max(samples, len(capabilities))
    shares = proportional_shares(samples, capabilities)
    assert sum(shares) == samples
    assert min(shares) >= 1
    wanted = [samples * capability / sum(capabilities) for capability in capabilities]
    if min(wanted) >= 1:
        assert all(abs(share - want) < 1 + 1e-9 for share, want in zip(shares, wanted, strict=True))


@given(samples_and_ranks)
def test_equal_capabilities_give_equal_shares(given: tuple[int, int]) -> None:
    samples, ranks = given
    assert proportional_shares(samples, [1.0] * ranks) == equal_shares(samples, ranks)


@pytest.mark.parametrize(
    ("samples", "capabilities", "shares"),
    [
        (100, [2, 1, 1], [50, 25, 25]),
        (8, [6, 1, 1], [6, 1, 1]),  # nothing to round, one each already
        (10, [88, 12], [9, 1]),  # 8.8 and 1.2: the larger remainder
        (10, [12, 88], [1, 9]),
        (10, [1.5, 1.4, 7.1], [2, 1, 7]),
        (10, [1, 1, 1], [4, 3, 3]),  # the first among equals
        (4, [100, 1, 1], [2, 1, 1]),  # 3.9 and twice 0.04: one each, and the rest by capability
        (10, [100, 1, 1, 1], [7, 1, 1, 1]),
    ],
)
def test_shares_by_hand(samples: int, capabilities: list[float], shares: list[int]) -> None:
    assert proportional_shares(samples, capabilities) == shares


@given(samples_and_ranks)
def test_slices_are_disjoint_and_complete(given: tuple[int, int]) -> None:
    rows = [row for part in slices(equal_shares(*given)) for row in range(part.start, part.stop)]
    assert rows == list(range(given[0]))


@pytest.mark.parametrize(("samples", "ranks"), [(10, 0), (10, -1), (3, 4), (0, 1)])
def test_impossible_shares_are_refused(samples: int, ranks: int) -> None:
    with pytest.raises(UsageError, match=r"samples"):
        equal_shares(samples, ranks)


def test_one_sample_each_is_enough() -> None:
    assert equal_shares(3, 3) == proportional_shares(3, [1, 5, 100]) == [1, 1, 1]
    assert equal_shares(1, 1) == [1]


@pytest.mark.parametrize("capability", [0.0, -1.0, float("inf"), float("nan")])
def test_impossible_capabilities_are_refused(capability: float) -> None:
    with pytest.raises(UsageError, match="capabilities"):
        proportional_shares(10, [1.0, capability])
