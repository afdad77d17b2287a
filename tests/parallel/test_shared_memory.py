"""In shared memory no rank continues before everything it needs is there, however late another rank is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.one_in(2)
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_shared_memory_all_reduces_wait_for_a_late_rank(under_mpirun: Callable[..., Any], ranks: int) -> None:
    turns = under_mpirun("late_in_shared_memory.py", ranks)
    assert turns == 3 * (3 * 3 + 1) * 3 * ranks * 4, "types, vectors, ways to be late, ranks, rounds"
