"""A fork server's memory moves into huge pages: which memory, and unchanged."""

from __future__ import annotations

import mmap
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from farandole_tools.forked_ranks import forks, huge_pages

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


def test_a_fork_server_moves_it_only_when_no_launch_waits_or_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[int] = []
    monkeypatch.setattr(huge_pages, "collapse", lambda: moved.append(1))
    server = forks.ForkServer.__new__(forks.ForkServer)
    server.forks, server.settled = set(), False
    asked: list[float | None] = []

    def begins() -> None:
        server.forks.add(forks.Fork(1, 2, None))  # type: ignore[arg-type]

    def ends() -> None:
        server.forks.clear()

    last = object()
    happens = iter([[begins], [lambda: None], [ends], [], [lambda: None], [lambda: last]])

    def select(timeout: float | None) -> list[tuple[SimpleNamespace, int]]:
        asked.append(timeout)
        return [(SimpleNamespace(data=data), 0) for data in next(happens)]

    server.events = SimpleNamespace(select=select)  # type: ignore[assignment]
    assert server.serve() is last
    assert asked == [0, None, None, 0, None, None]
    assert moved == [1]
