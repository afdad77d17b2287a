"""The bully election among processes: all agree on the highest, in groups of every size and whichever rank is late."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def test_all_agree_on_the_highest(under_mpirun: Callable[..., Any]) -> None:
    sizes, times = 5, 8
    elected = under_mpirun("election_over_mpi.py", 7)
    assert elected == {"all at once": sizes * times, "one late": sizes * times, "the highest very late": sizes}
