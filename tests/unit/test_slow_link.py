"""Lab 15's link: the time of a message alone, and of one after another, on the test's own clock."""

from __future__ import annotations

import pytest

from farandole.runtime import links
from farandole_tools.lab import slow_link
from farandole_tools.lab.slow_link import SlowLink


class Clock:
    """Time that passes only in sleep."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(links, "time", clock)
    monkeypatch.setattr(slow_link, "time", clock)
    return clock


@pytest.mark.parametrize(("nbytes", "seconds"), [(0, 2), (1, 2.5), (6, 5)])
def test_a_message_takes_alpha_and_beta_for_each_byte(clock: Clock, nbytes: int, seconds: float) -> None:
    SlowLink(alpha=2, beta=0.5).send(nbytes)
    assert clock.now == pytest.approx(100 + seconds)


def test_only_the_first_message_takes_the_set_up(clock: Clock) -> None:
    link = SlowLink(alpha=2, beta=0.5, setup_s=7)
    link.send(2)
    assert clock.now == pytest.approx(110)
    link.send(2)
    assert clock.now == pytest.approx(113)


def test_messages_that_come_at_once_are_received_one_after_the_other(clock: Clock) -> None:
    link = SlowLink(alpha=2, beta=0.5)
    for _ in range(3):
        link.receive(2)
    assert clock.now == pytest.approx(106)  # the first one's sender has waited for it
