"""A message queue without MPI: ticks and time-outs while messages arrive."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import pytest
from mpi4py import MPI

from farandole.parameter_server import message_queue as module
from farandole.parameter_server.header import Header, Kind
from farandole.parameter_server.message_queue import ANSWER, LATEST_TICK_S, REQUEST, MessageQueue, pack
from farandole.runtime.communicator import Communicator
from farandole.runtime.flight_recorder import FlightRecorder
from farandole.runtime.watchdog import Watchdog

MESSAGE_EVERY_S = 0.001


class Traffic:
    """A communicator on which the next message has always arrived, and a clock that these messages advance."""

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
    messages, ticks = MessageQueue(cast(Communicator, traffic), REQUEST), []
    for _ in range(1000):
        messages.wait(lambda: ticks.append(traffic.working_now))
    assert all(ticks), "a rank that hangs in a tick does not wait for a message"
    assert len(ticks) == pytest.approx(1000 * MESSAGE_EVERY_S / LATEST_TICK_S, rel=0.2)


def test_a_service_may_wait_without_a_time_limit() -> None:
    """The time-out applies to answers; a cleaning node may have nothing to do until the end."""
    bitten: list[str] = []
    recorder = FlightRecorder(0, None)
    watchdog = Watchdog(1.0, recorder, lambda waiting, seconds: bitten.append(waiting[0]))
    comm = Communicator(MPI.COMM_SELF, watchdog, recorder)
    messages, begun = MessageQueue(comm, REQUEST), time.monotonic()
    watchdog.start()

    def tick() -> None:
        if time.monotonic() - begun > 2.5:
            messages.send(0, REQUEST, Header(Kind.STOP))

    assert messages.wait(tick).kind == Kind.STOP
    assert not bitten
    with comm.waiting("an answer", -1):
        watchdog.join(timeout=60)
    assert bitten == ["an answer"]
    messages.flush()


def test_the_watchdog_sees_every_wait(traffic: Traffic) -> None:
    """Also a wait in the middle of a tick: the peer may be the rank that hangs."""
    messages = MessageQueue(cast(Communicator, traffic), REQUEST)
    values = np.zeros(2)

    def send_and_wait() -> None:
        messages.send(3, ANSWER, Header(Kind.GRANT))
        messages.send_payload(3, values)
        messages.wait_for_sends()

    send_and_wait()
    traffic.now += 2 * LATEST_TICK_S
    messages.wait(send_and_wait)
    messages.receive([values], 3)
    assert traffic.watched == ["sent", "taken", "sent", "taken"]
