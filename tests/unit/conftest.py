"""Fixtures of tests that change this process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from threadpoolctl import threadpool_limits


@pytest.fixture
def same_threads() -> Iterator[None]:
    """Restore the numbers of threads of torch and numpy, which a world in this process sets: sums depend on them."""
    before = torch.get_num_threads()
    with threadpool_limits(1, user_api="blas"):
        yield
    torch.set_num_threads(before)
