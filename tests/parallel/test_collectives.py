"""All-reduce under mpirun: equal to MPI's, the same bits on all ranks, at the counted cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
def test_all_reduces_equal_mpis(under_mpirun: Callable[..., Any], ranks: int) -> None:
    answer = under_mpirun("collectives.py", ranks)
    lengths = len({0, 1, ranks - 1, ranks, ranks + 1, 1000, 4099, 300_000})
    assert answer["checked"] == 3 * 4 * lengths + 2
    assert answer["ring_bytes_of_1000_floats"] == pytest.approx(2 * (ranks - 1) / ranks * 4000, abs=8)
