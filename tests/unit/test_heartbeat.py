"""Which silent ranks are declared dead, and which are not. Real hangs: tests/parallel."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from mpi4py import MPI

from farandole.errors import UsageError
from farandole.recovery.heartbeat import DATAGRAM, Heart, check
from farandole.recovery.sign_of_life import FIRST_STEP, SLOWER, Sign
from farandole.runtime import devices
from farandole.runtime.flight_recorder import Position
from farandole.runtime.options import RunOptions
from farandole.runtime.world import World

WAIT_TIMEOUT_S = 5000.0
AFTER_S = 500.0  # much longer than a test takes on a busy machine
Listens = Callable[..., tuple[Heart, list[tuple[int, int]]]]


@pytest.fixture
def heart_of_one() -> Listens:
    """Rank 0's heart, which last received a sign of ranks 1 and 2 `silent_s` seconds ago; the ranks declared dead."""

    def make(silent_s: float, gone: set[int]) -> tuple[Heart, list[tuple[int, int]]]:
        found: list[tuple[int, int]] = []
        world = cast(Any, SimpleNamespace(control=MPI.COMM_SELF, rank=0, size=1, local_size=1, cut_off=False))
        heart = Heart(world, AFTER_S, WAIT_TIMEOUT_S, lambda rank, step: found.append((rank, step)), gone=gone)
        heard = time.monotonic() - silent_s
        for rank in (1, 2):
            heart._addresses[rank] = heart._own
            heart._signs[rank] = Sign(7, 3, False, heard, heard)
        heart._send = lambda rank, datagram: None  # type: ignore[method-assign]
        return heart, found

    return make


def test_a_device_is_warm_before_a_heart_can_beat(monkeypatch: pytest.MonkeyPatch) -> None:
    """A card's first start may take longer than --hang-after, and a rank makes no progress in it."""
    warm: list[torch.device] = []
    monkeypatch.setattr(devices, "warm_up", warm.append)
    monkeypatch.setattr(devices, "limit_threads", lambda ranks: ranks)
    world = World(RunOptions(device="cpu"), MPI.COMM_SELF)
    assert warm == [world.device], "and a heart needs a world"


def test_who_is_silent_for_too_long_is_taken_for_dead_but_not_once_more_who_is(heart_of_one: Listens) -> None:
    heart, found = heart_of_one(AFTER_S + 50, gone={2})
    heart._judge(time.monotonic())
    assert found == [(1, 7)]


def test_who_has_not_been_heard_yet_may_still_be_building_its_model(heart_of_one: Listens) -> None:
    heart, found = heart_of_one(AFTER_S + 50, gone={2})
    heart._signs[1] = Sign()
    heart._excuse(200.0, time.monotonic())
    heart._judge(time.monotonic() + 10 * AFTER_S)
    assert found == []
    heart._hear(DATAGRAM.pack(heart._secret, False, 1, 0, 1, False))
    heart._judge(time.monotonic() + AFTER_S + 50)
    assert found == [(1, 0)], "it has been heard, and then was silent"


@pytest.mark.parametrize(
    ("still_s", "longest_s", "begun", "hangs"),
    [
        (AFTER_S + 50, 0.1, 2, True),
        (AFTER_S - 50, 0.1, 2, False),
        (SLOWER * AFTER_S - 50, AFTER_S, 2, False),  # its moves take as long as the time-out
        (SLOWER * AFTER_S + 50, AFTER_S, 2, True),
        (FIRST_STEP * AFTER_S - 50, 0.1, 1, False),  # how long its step takes is not known yet
        (FIRST_STEP * AFTER_S + 50, 0.1, 1, True),
        (0.9 * WAIT_TIMEOUT_S - 50, WAIT_TIMEOUT_S, 2, False),  # soon the others would give up
        (0.9 * WAIT_TIMEOUT_S + 50, WAIT_TIMEOUT_S, 2, True),
    ],
)
def test_a_rank_that_is_slow_and_sends_heartbeats_does_not_hang(
    still_s: float, longest_s: float, begun: int, hangs: bool, heart_of_one: Listens
) -> None:
    heart, found = heart_of_one(0.0, gone={2})
    now = time.monotonic()
    heart._signs[1] = Sign(7, 3, False, now, now - still_s, longest_s, begun)
    heart._judge(now)
    assert found == ([(1, 7)] if hangs else [])


def test_how_long_a_move_takes_is_learned_from_heartbeats_but_waiting_is_no_move(heart_of_one: Listens) -> None:
    heart, _ = heart_of_one(0.0, gone={2})
    sign = heart._signs[1]

    def hear(after_s: float, step: int, moves: int, waiting: bool = False) -> None:
        sign.moved -= after_s
        heart._hear(DATAGRAM.pack(heart._secret, False, 1, step, moves, waiting))

    hear(0, 7, 3)
    hear(300, 7, 4)
    hear(900, 7, 4, waiting=True)
    hear(0, 8, 5)
    assert (sign.longest, sign.begun) == (pytest.approx(300, abs=60), 1)


@pytest.mark.parametrize(
    ("own", "heard", "silent", "gone", "goes_on"),
    [
        (0, {1, 2}, {3}, set(), True),
        (3, set(), {0, 1, 2}, set(), False),
        (1, {2, 3, 4}, {0, 5}, set(), True),
        (0, {5}, {1, 2, 3, 4}, set(), False),
        (0, {1}, {2, 3}, set(), True),  # of two halves, that with the lowest rank
        (2, {3}, {0, 1}, set(), False),
        (1, {2}, {0, 3, 4}, {0}, True),  # rank 0 had died before: {1, 2} is the half with the lowest rank
        (0, set(), {1}, set(), True),
        (1, set(), {0}, set(), False),
        (0, set(), set(), set(), True),
    ],
)
def test_of_a_divided_network_one_part_goes_on(
    own: int, heard: set[int], silent: set[int], gone: set[int], goes_on: bool, heart_of_one: Listens
) -> None:
    heart, _ = heart_of_one(0.0, gone=gone)
    heart.world.rank, now = own, time.monotonic()
    ago = dict.fromkeys(heard, 1.0) | dict.fromkeys(silent, AFTER_S + 50)
    heart._signs = {rank: Sign(7, 3, False, now - seconds, now - seconds) for rank, seconds in ago.items()}
    heart._addresses = dict.fromkeys(ago, heart._own)
    assert heart._in_minority(now) is not goes_on


def test_a_process_of_this_host_that_has_ended_is_dead_and_not_cut_off(heart_of_one: Listens) -> None:
    heart, _ = heart_of_one(AFTER_S + 50, gone=set())
    assert heart._in_minority(time.monotonic()), "it hears neither of the two others"
    ended = subprocess.Popen([sys.executable, "-S", "-c", ""])
    address = replace(heart._own, pid=ended.pid, created=psutil.Process(ended.pid).create_time())
    ended.wait()
    heart._addresses |= {1: address, 2: address}
    assert not heart._in_minority(time.monotonic())
    heart._addresses[2] = replace(address, host="another.host")
    assert not heart._in_minority(time.monotonic()), "one of two, and the one with the lower number"
    heart._addresses[1] = replace(address, host="another.host")
    assert heart._in_minority(time.monotonic())


@given(st.integers(2, 9), st.data())
def test_however_a_network_is_divided_at_most_one_part_goes_on(ranks: int, data: st.DataObject) -> None:
    part_of = data.draw(st.lists(st.integers(0, 3), min_size=ranks, max_size=ranks))
    go_on = set()
    for own, part in enumerate(part_of):
        heart = cast(
            Any, SimpleNamespace(world=SimpleNamespace(rank=own), gone=(), after_s=AFTER_S, _has_ended=lambda _: False)
        )
        heard = {rank: 0.0 if part_of[rank] == part else -2 * AFTER_S for rank in range(ranks) if rank != own}
        heart._signs = {rank: Sign(7, 3, False, when, when) for rank, when in heard.items()}
        if not Heart._in_minority(heart, 0.0):
            go_on.add(part)
    assert len(go_on) <= 1


def test_who_is_silent_for_less_is_not(heart_of_one: Listens) -> None:
    heart, found = heart_of_one(AFTER_S - 50, gone=set())
    heart._judge(time.monotonic())
    assert found == []


def test_whoever_has_not_listened_blames_nobody(heart_of_one: Listens) -> None:
    heart, found = heart_of_one(AFTER_S + 50, gone=set())
    heart._excuse(200.0, time.monotonic())
    heart._judge(time.monotonic())
    assert found == []


def test_whoever_has_just_been_heard_after_the_delay_is_no_later_found(heart_of_one: Listens) -> None:
    heart, found = heart_of_one(0.0, gone=set())
    now = time.monotonic()
    heart._excuse(10_000.0, now)
    later = now + AFTER_S + 50
    heart._signs |= {rank: Sign(7, 3, False, later, later) for rank in (3, 4)}  # it receives from more than half
    heart._judge(later)
    assert {rank for rank, _ in found} == {1, 2}


@pytest.mark.parametrize(
    ("position", "waits"),
    [
        (Position(0, 7, waiting=False, peer=0), False),
        (Position(0, 7, waiting=True, peer=0), True),
        (Position(0, 7, waiting=True, peer=0, working=True), False),
    ],
)
def test_who_works_while_it_waits_may_hang(heart_of_one: Listens, position: Position, waits: bool) -> None:
    heart, _ = heart_of_one(0.0, gone=set())
    heart.world = cast(Any, SimpleNamespace(rank=0, position=position, cut_off=False))
    sent: list[bytes] = []
    heart._send = lambda rank, datagram: sent.append(datagram)  # type: ignore[method-assign]
    heart._beat()
    assert {DATAGRAM.unpack(each)[-1] for each in sent} == {waits}


def test_a_silence_longer_than_anybody_waits_is_refused() -> None:
    check(5.0, 6.0)
    with pytest.raises(UsageError, match="--hang-after 6: a waiting rank gives up after --wait-timeout 6; give less"):
        check(6.0, 6.0)
