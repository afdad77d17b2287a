"""All-reduce under mpirun: equal to MPI's, the same bits on all ranks, at the counted cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from farandole.collectives.all_reduce import ALL_REDUCES


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
def test_all_reduces_equal_mpis(under_mpirun: Callable[..., Any], ranks: int) -> None:
    answer = under_mpirun("collectives.py", ranks)
    assert answer["checked"] == len(ALL_REDUCES) + 3
    assert answer["ring_bytes_of_1000_floats"] == pytest.approx(2 * (ranks - 1) / ranks * 4000, abs=8)
