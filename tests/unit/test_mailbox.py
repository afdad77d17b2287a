"""A mailbox without MPI: who is served and who is looked after while messages come."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import pytest
from mpi4py import MPI

from farandole.parameter_server import mailbox as module
from farandole.parameter_server.header import Header, Kind, pack
from farandole.parameter_server.mailbox import ANSWER, LATEST_TICK_S, REQUEST, Mailbox
from farandole.runtime.communicator import Communicator
from farandole.runtime.flight_recorder import FlightRecorder
from farandole.runtime.watchdog import Watchdog

MESSAGE_EVERY_S = 0.001


class Traffic:
    """A communicator on which the next message has always come, and a clock that such messages drive."""

    def __init__(self) -> None:
        self.now = 0.0
        self.watching = 0
        self.working_now = False
        self.watched: list[str] = []

    def arrived(self, tag: int) -> int:
        self.now += MESSAGE_EVERY_S
        return 3

    def take(self, buffer: Any, source: int, tag: int) -> None:
        self.watched.append("taken")
        buffer[:] = pack(Header(Kind.ALIVE)) if tag == REQUEST else 7
        assert self.watching

    def post(self, buffer: Any, to: int, tag: int, nbytes: int | None = None) -> Any:
        return self

    def Wait(self) -> None:  # as a request of MPI
        self.watched.append("sent")
        assert self.watching
        assert not self.working_now

    def Test(self) -> bool:
        return False

    @contextmanager
    def waiting(self, call: str, peer: int) -> Iterator[None]:
        worked, self.working_now = self.working_now, False
        self.watching += 1
        yield
        self.watching -= 1
        self.working_now = worked

    @contextmanager
    def working(self) -> Iterator[None]:
        assert self.watching == 1
        self.working_now = True
        yield
        self.working_now = False

    @contextmanager
    def naming_the_lost(self, call: str, peer: int) -> Iterator[None]:
        yield


@pytest.fixture
def traffic(monkeypatch: pytest.MonkeyPatch) -> Traffic:
    traffic = Traffic()
    monkeypatch.setattr(module.time, "monotonic", lambda: traffic.now)
    return traffic


def test_time_passes_though_messages_keep_coming(traffic: Traffic) -> None:
    mailbox, ticks = Mailbox(cast(Communicator, traffic), REQUEST), []
    for _ in range(1000):
        mailbox.wait(lambda: ticks.append(traffic.working_now))
    assert all(ticks), "who hangs in it does not wait for a message"
    assert len(ticks) == pytest.approx(1000 * MESSAGE_EVERY_S / LATEST_TICK_S, rel=0.2)


def test_a_service_that_nobody_needs_for_long_waits_on() -> None:
    """The time-out is for answers, and a cleaning node may have nothing to do until the end."""
    bitten: list[str] = []
    recorder = FlightRecorder(0, None)
    watchdog = Watchdog(1.0, recorder, lambda waiting, seconds: bitten.append(waiting[0]))
    comm = Communicator(MPI.COMM_SELF, watchdog, recorder)
    mailbox, begun = Mailbox(comm, REQUEST), time.monotonic()
    watchdog.start()

    def tick() -> None:
        if time.monotonic() - begun > 2.5:
            mailbox.send(0, REQUEST, Header(Kind.STOP))

    assert mailbox.wait(tick).kind == Kind.STOP
    assert not bitten
    with comm.waiting("an answer", -1):
        watchdog.join(timeout=60)
    assert bitten == ["an answer"]
    mailbox.flush()


def test_whatever_is_waited_for_is_under_the_watchdogs_eye(traffic: Traffic) -> None:
    """Also what is waited for in the middle of work of its own: whoever it waits for may be the one that hangs."""
    mailbox = Mailbox(cast(Communicator, traffic), REQUEST)
    values = np.zeros(2)

    def send_and_settle() -> None:
        mailbox.send(3, ANSWER, Header(Kind.GRANT))
        mailbox.send_payload(3, values)
        mailbox.settle()

    send_and_settle()
    traffic.now += 2 * LATEST_TICK_S
    mailbox.wait(send_and_settle)
    mailbox.take([values], 3)
    assert traffic.watched == ["sent", "taken", "sent", "taken"]
