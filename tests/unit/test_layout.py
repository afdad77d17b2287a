"""Where one server's ranges lie in the client's table, against the definition: keys one after another."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from farandole.parameter_server.keys import KeyRange, cut
from farandole.parameter_server.layout import Layout

TABLES = [(40,), (40, 3), (40, 2, 2)]


@st.composite
def held(draw: st.DrawFn) -> list[KeyRange]:
    """Some of the ranges that 40 keys are cut into, ascending; perhaps none."""
    ranges = cut(40, draw(st.integers(1, 40)))
    return [part for part in ranges if draw(st.booleans())]


def keys(ranges: list[KeyRange]) -> list[int]:
    return [key for part in ranges for key in range(part.start, part.stop)]


@pytest.mark.parametrize("shape", TABLES)
@given(held())
def test_a_servers_part_is_its_keys_in_order(shape: tuple[int, ...], ranges: list[KeyRange]) -> None:
    table = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    layout = Layout(ranges, shape, table.dtype)
    part = layout.part(table)
    assert np.array_equal(part, table[keys(ranges)])
    assert layout.keys == len(keys(ranges))
    assert layout.local_shape == part.shape
    assert layout.nbytes == part.nbytes
    assert not np.shares_memory(part, table), "a copy"


@given(held(), st.sets(st.integers(0, 39)))
def test_a_global_row_is_found_in_the_servers_part(ranges: list[KeyRange], rows: set[int]) -> None:
    table = np.arange(40 * 2.0).reshape(40, 2)
    layout = Layout(ranges, table.shape, table.dtype)
    numbers = np.array(sorted(rows), dtype=np.int64)
    here = layout.rows_here(numbers)
    assert here.tolist() == [row in keys(ranges) for row in sorted(rows)]
    local = layout.to_local(numbers[here]) if here.any() else np.arange(0)
    assert np.array_equal(layout.part(table)[local], table[numbers[here]])


@given(held())
def test_mpi_sends_the_ranges_where_they_lie(ranges: list[KeyRange]) -> None:
    """From one table into another: the server's keys arrive at their places, and nothing else changes."""
    from mpi4py import MPI

    table, other = np.arange(40 * 3.0).reshape(40, 3), np.full((40, 3), -1.0)
    layout = Layout(ranges, table.shape, table.dtype)
    MPI.COMM_SELF.Sendrecv(layout.of(table), 0, 0, layout.of(other), 0, 0)
    expected = np.full((40, 3), -1.0)
    expected[keys(ranges)] = table[keys(ranges)]
    assert np.array_equal(other, expected)
