"""Each rank's place in a grid of six axes, and the message for a grid that does not fit."""

from __future__ import annotations

from dataclasses import astuple
from itertools import permutations, product
from math import comb, prod
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farandole.errors import UsageError
from farandole.grid.options import GridOptions
from farandole.model_parallel.grid import AXES, Grid, factorisations, fitting
from farandole.model_parallel.layout import Layout
from farandole.model_parallel.schedules import choose

grids = st.builds(Grid, **dict.fromkeys(AXES, st.integers(1, 4)))
sets_of_axes = st.sets(st.sampled_from(AXES))


def test_the_innermost_axis_has_neighbouring_ranks() -> None:
    assert AXES == ("data", "shard", "pipeline", "expert", "context", "tensor")
    grid = Grid(data=2, pipeline=3, tensor=4)
    assert grid.line(5, "tensor") == [4, 5, 6, 7]
    assert grid.line(5, "pipeline") == [1, 5, 9]
    assert grid.line(5, "data") == [5, 17]
    assert [grid.place(17)[axis] for axis in ("data", "pipeline", "tensor")] == [1, 1, 1]
    assert str(grid) == "data 2 × pipeline 3 × tensor 4"


@given(grids)
def test_ranks_and_places_are_each_others_inverse(grid: Grid) -> None:
    """In the order of nested loops, the last axis innermost."""
    places = [dict(zip(AXES, numbers, strict=True)) for numbers in product(*map(range, astuple(grid)))]
    assert [grid.place(rank) for rank in range(grid.ranks)] == places
    assert [grid.rank(place) for place in places] == list(range(grid.ranks))


@given(grids, sets_of_axes, st.data())
def test_the_lines_along_some_axes_divide_the_ranks(grid: Grid, along: set[str], data: st.DataObject) -> None:
    """All ranks of a line have the same line; and they are those whose places differ along these axes only."""
    rank = data.draw(st.integers(0, grid.ranks - 1))
    line = grid.line(rank, *along)
    fixed = [axis for axis in AXES if axis not in along]
    place = grid.place(rank)
    assert line == [
        other for other in range(grid.ranks) if all(grid.place(other)[axis] == place[axis] for axis in fixed)
    ]
    assert len(line) == prod(grid.lengths[axis] for axis in along)
    assert all(grid.line(other, *along) == line for other in line)
    assert line[grid.number(rank, *along)] == rank
    assert line == grid.at(**{axis: place[axis] for axis in fixed})


@given(grids, sets_of_axes, sets_of_axes)
def test_a_line_of_lines_is_a_line(grid: Grid, some: set[str], others: set[str]) -> None:
    """A sum along some axes, and then along others, is a sum along both."""
    reached = {far for near in grid.line(0, *some) for far in grid.line(near, *others)}
    assert sorted(reached) == grid.line(0, *some | others)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 6, 7, 8, 12, 64])
def test_there_is_every_factorisation_once(ranks: int) -> None:
    found = factorisations(ranks)
    assert all(grid.ranks == ranks for grid in found)
    assert len(set(found)) == len(found)
    exponents = [sum(ranks % prime**power == 0 for power in range(1, 7)) for prime in (2, 3, 5, 7)]
    assert len(found) == prod(comb(exponent + 5, 5) for exponent in exponents), "each prime to any of the six"
    three = factorisations(ranks, ("data", "pipeline", "tensor"))
    assert len(three) == prod(comb(exponent + 2, 2) for exponent in exponents)
    assert all(grid.shard == grid.expert == grid.context == 1 for grid in three)


def test_an_open_axis_takes_what_the_others_leave() -> None:
    assert fitting(12, {"data": None, "tensor": 2, "context": 3}) == Grid(data=2, tensor=2, context=3)
    assert fitting(3, {"data": None, "shard": 3}) == Grid(shard=3)
    assert GridOptions(tensor_ranks=2, experts=4, expert_ranks=2).grid(8) == Grid(data=2, expert=2, tensor=2)


@pytest.mark.parametrize(
    ("ranks", "wanted", "says"),
    [
        (
            4,
            {"data": None, "pipeline": 3, "tensor": 1},
            "pipeline 3 × tensor 1 does not make 4 ranks; data × pipeline × tensor could be pipeline 4, "
            "or data 2 × pipeline 2, or pipeline 2 × tensor 2",
        ),
        (
            8,
            {"data": 3, "tensor": 2},
            "data 3 × tensor 2 does not make 8 ranks; data × tensor could be data 4 × tensor 2,",
        ),
        (1, {"data": 2}, "data 2 does not make 1 rank; data could be 1 rank"),
    ],
)
def test_another_grid_is_refused_with_the_nearest_that_fit(
    ranks: int, wanted: dict[str, int | None], says: str
) -> None:
    with pytest.raises(UsageError) as told:
        fitting(ranks, wanted)
    assert says in str(told.value)


@given(st.integers(1, 24), st.lists(st.integers(1, 5), min_size=6, max_size=6))
def test_a_grid_is_accepted_if_and_only_if_it_makes_the_ranks(ranks: int, lengths: list[int]) -> None:
    wanted = dict(zip(AXES, lengths, strict=True))
    if prod(lengths) == ranks:
        assert fitting(ranks, dict(wanted)) == Grid(**wanted)
    else:
        with pytest.raises(UsageError, match=f"does not make {ranks} ranks?; data × shard"):
            fitting(ranks, dict(wanted))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"tensor_ranks": 3}, "tensor 3 does not make 8 ranks; data × tensor could be "),
        ({"data": "digits", "model": "mlp"}, "the grid divides a transformer: give --model transformer --data pydoc"),
        ({"expert_ranks": 2}, "--expert-ranks 2 have no experts to divide: give --experts"),
        ({"experts": 4, "capacity": 1.0, "context_ranks": 2}, "give --capacity 0, or --context-ranks 1"),
        ({"unfused_attention": True, "context_ranks": 2}, "--unfused-attention: ring attention keeps no square"),
        ({"recompute": "full", "experts": 4}, "--recompute full would send every token to its experts once more"),
    ],
)
def test_axes_that_have_no_meaning_together_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        GridOptions(**options).grid(8)


@pytest.mark.parametrize(("data", "pipeline", "tensor"), [*permutations((1, 2, 4)), (2, 2, 2)])
def test_a_virtual_stage_is_on_its_stage_of_every_pipeline(data: int, pipeline: int, tensor: int) -> None:
    layout = Layout(data, pipeline, tensor, schedule=choose("interleaved", 2))
    ranks = [
        [(copy * pipeline + stage) * tensor + part for copy in range(data) for part in range(tensor)]
        for stage in range(pipeline)
    ]
    assert [layout.holders(virtual) for virtual in range(2 * pipeline)] == ranks * 2
