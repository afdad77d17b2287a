"""Where a model is cut: no other cut has a cheaper costliest part."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farandole.errors import UsageError
from farandole.model_parallel.partition import largest_cost, min_max_partition


def every_cut(layers: int, parts: int) -> list[list[slice]]:
    """All ways to cut so many layers into contiguous, non-empty parts."""
    inner = combinations(range(1, layers), parts - 1)
    return [[slice(a, b) for a, b in pairwise([0, *bounds, layers])] for bounds in inner]


@given(st.data())
def test_no_cut_is_better(data: st.DataObject) -> None:
    costs = data.draw(st.lists(st.integers(0, 20), min_size=1, max_size=9))
    parts = data.draw(st.integers(1, len(costs)))
    found = min_max_partition(costs, parts)
    assert found in every_cut(len(costs), parts)
    assert largest_cost(costs, found) == min(largest_cost(costs, cut) for cut in every_cut(len(costs), parts))


@given(st.data())
def test_of_the_best_cuts_the_most_even_one_is_taken(data: st.DataObject) -> None:
    costs = data.draw(st.lists(st.integers(0, 20), min_size=1, max_size=9))
    parts = data.draw(st.integers(1, len(costs)))

    def squares(cut: list[slice]) -> int:
        return sum(sum(costs[part]) ** 2 for part in cut)

    cuts = every_cut(len(costs), parts)
    best = min(largest_cost(costs, cut) for cut in cuts)
    assert squares(min_max_partition(costs, parts)) == min(
        squares(cut) for cut in cuts if largest_cost(costs, cut) == best
    )


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=7), st.data())
def test_rounding_forbids_no_cut(costs: list[float], data: st.DataObject) -> None:
    parts = data.draw(st.integers(1, len(costs)))
    found = min_max_partition(costs, parts)
    assert found in every_cut(len(costs), parts)
    best = min(largest_cost(costs, cut) for cut in every_cut(len(costs), parts))
    assert largest_cost(costs, found) == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize(("layers", "parts"), [(8, 4), (7, 3), (5, 5), (9, 1), (13, 6), (10, 4), (11, 5)])
def test_equal_layers_are_dealt_out_evenly(layers: int, parts: int) -> None:
    sizes = [part.stop - part.start for part in min_max_partition([1.0] * layers, parts)]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("parts", [0, -1, 4])
def test_more_parts_than_layers_is_said_in_one_line(parts: int) -> None:
    with pytest.raises(UsageError, match=r"3 layers cannot be cut into .* at most 3"):
        min_max_partition([1.0, 2.0, 3.0], parts)


def test_evenness_is_the_sum_of_squares() -> None:
    """Parts of 8, 9, 2, 4 and of 7, 1, 9, 6 have the same largest one; the sum of squares is 165 or 167."""
    assert min_max_partition([7, 1, 9, 2, 4], 4) == [slice(0, 2), slice(2, 3), slice(3, 4), slice(4, 5)]
