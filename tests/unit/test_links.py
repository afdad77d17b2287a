"""A slow link: how long it is busy with each message, on the test's own clock."""

from __future__ import annotations

import pytest

from farandole.errors import UsageError
from farandole.runtime import links
from farandole.runtime.links import Link, LinkChange, refuse


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
    return clock


def test_what_is_sent_takes_its_bits_over_the_rate(clock: Clock) -> None:
    Link(mbps=8).send(3_000_000)
    assert clock.now == pytest.approx(103)


def test_who_sleeps_for_long_shows_that_it_lives(clock: Clock) -> None:
    link, signs = Link(mbps=8), []
    link.meanwhile = lambda: signs.append(clock.now)
    link.send(3_500_000)
    assert signs == pytest.approx([101, 102, 103, 103.5])


def test_messages_leave_one_after_the_other(clock: Clock) -> None:
    link = Link(mbps=8)
    link.send(1_000_000)
    clock.now += 5  # idle: unused capacity is not saved up
    link.send(1_000_000)
    assert clock.now == pytest.approx(107)


def test_many_short_messages_take_as_long_as_one_long_one(clock: Clock) -> None:
    link = Link(mbps=8)
    for _ in range(10_000):
        link.send(100)
    assert clock.now == pytest.approx(101, abs=links.SHORTEST_S)


def test_a_message_that_came_alone_has_been_waited_for_by_its_sender(clock: Clock) -> None:
    Link(mbps=8).receive(3_000_000)
    assert clock.now == 100


def test_messages_that_come_at_once_share_the_receivers_link(clock: Clock) -> None:
    link = Link(mbps=8)
    for _ in range(3):
        link.receive(1_000_000)
    assert clock.now == pytest.approx(102)  # the first arrived while it was sent, the others after it
    clock.now += 5
    link.receive(1_000_000)
    assert clock.now == pytest.approx(107)


def test_what_was_expected_may_have_come_while_other_things_were_done(clock: Clock) -> None:
    link = Link(mbps=8)
    expected = clock.now
    link.send(2_000_000)
    for _ in range(2):  # a neighbour's on either side, meanwhile
        link.receive(1_000_000, expected)
    assert clock.now == pytest.approx(102)
    link.receive(1_000_000, expected)
    assert clock.now == pytest.approx(103)


def test_both_ways_at_the_same_time(clock: Clock) -> None:
    link = Link(mbps=8)
    for _ in range(4):  # a ring's steps
        link.send(1_000_000)
        link.receive(1_000_000)
    assert clock.now == pytest.approx(104)


def test_each_message_takes_the_latency_beside_its_bytes(clock: Clock) -> None:
    link = Link.of(8, latency_ms=500)
    assert link
    for _ in range(2):
        link.send(1_000_000)
    assert clock.now == pytest.approx(103)


def test_of_messages_that_come_at_once_each_has_its_latency(clock: Clock) -> None:
    link = Link(8, latency_s=0.5)
    for _ in range(3):  # a central aggregator's
        link.receive(1_000_000)
    assert clock.now == pytest.approx(103), "the first one's sender has waited for it"
    link.receive(2_000_000, expected=clock.now, messages=2)
    assert clock.now == pytest.approx(106)


def test_a_latency_is_that_of_a_link() -> None:
    with pytest.raises(UsageError, match=r"--link-latency-ms 0\.5 adds to --link-mbps: give that too"):
        Link.of(None, latency_ms=0.5)


def test_what_sends_no_messages_is_refused() -> None:
    refuse(None, "shared memory")
    with pytest.raises(UsageError, match="--link-mbps slows down our own messages, and shared memory sends none"):
        refuse(Link(1), "shared memory")


def test_a_link_may_change_when_a_step_begins(clock: Clock) -> None:
    link = Link.of(8, [LinkChange(20, 4), LinkChange(10, 80)])
    assert link
    took = []
    for step in (9, 10, 15, 25):
        link.change(step)
        before = clock.now
        link.send(1_000_000)
        took.append(clock.now - before)
    assert took == pytest.approx([1, 0.1, 0.1, 2])


def test_there_must_be_a_link_to_change() -> None:
    assert Link.of(None) is None
    with pytest.raises(UsageError, match="--link-change step=3,mbps=20 changes --link-mbps: give that too"):
        Link.of(None, [LinkChange(3, 20)])
