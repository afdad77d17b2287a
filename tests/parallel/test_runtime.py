"""The pieces of the runtime that need more than one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
def test_grids_clocks_texts_messages_and_scatter(under_mpirun: Callable[..., Any], ranks: int) -> None:
    answer = under_mpirun("runtime_pieces.py", ranks)
    assert answer["grids"] == answer["divisors"]
