"""A fork server's memory moves into huge pages: which memory, and unchanged."""

from __future__ import annotations

import mmap
import sys

import numpy as np
import pytest

from farandole_tools.forked_ranks import huge_pages

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc")


def test_it_is_private_writable_memory_of_no_file() -> None:
    own, shared = np.ones(2**20), np.frombuffer(mmap.mmap(-1, 2**22), np.uint8)
    of_a_file = np.memmap(sys.executable, mode="r")
    ranges = list(huge_pages._private_memory())

    def holds(array: np.ndarray) -> bool:
        return any(start <= array.ctypes.data < end for start, end in ranges)

    assert [holds(own), holds(shared), holds(of_a_file)] == [True, False, False]


def test_memory_keeps_its_contents() -> None:
    values = np.arange(2**20)
    huge_pages.collapse()
    assert np.array_equal(values, np.arange(2**20))
