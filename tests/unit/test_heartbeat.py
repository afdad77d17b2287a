"""Who is taken for dead by its silence, and who is not. Real hangs: tests/parallel."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from mpi4py import MPI

from farandole.recovery.heartbeat import Heart, Sign

AFTER_S = 5.0
Listens = Callable[..., tuple[Heart, list[tuple[int, int]]]]


@pytest.fixture
def heart_of_one() -> Listens:
    """Rank 0's heart, which has last heard of ranks 1 and 2 so many seconds ago, and whom it takes for dead."""

    def make(silent_s: float, gone: set[int]) -> tuple[Heart, list[tuple[int, int]]]:
        found: list[tuple[int, int]] = []
        world = cast(Any, SimpleNamespace(control=MPI.COMM_SELF, rank=0, size=1, local_size=1))
        heart = Heart(world, AFTER_S, lambda rank, step: found.append((rank, step)), gone=gone)
        heard = time.monotonic() - silent_s
        for rank in (1, 2):
            heart._addresses[rank] = heart._own
            heart._signs[rank] = Sign(7, 3, False, heard, heard)
        heart._send = lambda rank, datagram: None  # type: ignore[method-assign]
        return heart, found

    return make


def test_who_is_silent_for_too_long_is_taken_for_dead_but_not_once_more_who_is(heart_of_one: Listens) -> None:
    heart, found = heart_of_one(AFTER_S + 0.5, gone={2})
    heart._judge(time.monotonic())
    assert found == [(1, 7)]


def test_who_is_silent_for_less_is_not(heart_of_one: Listens) -> None:
    heart, found = heart_of_one(AFTER_S - 0.5, gone=set())
    heart._judge(time.monotonic())
    assert found == []


def test_whoever_has_not_listened_blames_nobody(heart_of_one: Listens) -> None:
    heart, found = heart_of_one(AFTER_S + 0.5, gone=set())
    heart._excuse(2.0)
    heart._judge(time.monotonic())
    assert found == []
