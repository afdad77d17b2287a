"""Reliable delivery: whatever the link does, each message arrives once, in order, and the exchange ends."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from farandole.errors import UsageError
from farandole.runtime.faults import Fail
from farandole.runtime.lossy import Copy, Lossy, with_flipped_bit
from farandole.runtime.reliable import SHORTEST_S, Channel, Frame, GaveUp, RoundTrip

Fate = Callable[[], list[float]]  # after how long each copy of a frame arrives
Exchanged = tuple[list[list[bytes]], list[Channel]]


def exchanged(sent: tuple[int, int], fate: Fate, limit_s: float = inf) -> Exchanged:
    """Return what two channels deliver when each sends a number of messages over a link, event by event."""
    ends = [Channel(limit_s, tries=10**6 if limit_s == inf else 15) for _ in sent]
    delivered: list[list[bytes]] = [[], []]
    acknowledged: list[set[int]] = [set(), set()]
    order, events = count(), []

    def put(frame: Frame, to: int, now: float) -> None:
        for after_s in fate():
            heapq.heappush(events, (now + after_s, next(order), to, frame))

    for me, messages in enumerate(sent):
        for number in range(messages):
            put(ends[me].send(number % 3, bytes([me, number]), 0.0), 1 - me, 0.0)
    now = 0.0
    while [len(numbers) for numbers in acknowledged] != list(sent):
        now += SHORTEST_S / 2
        while events and events[0][0] <= now:
            at, _, to, frame = heapq.heappop(events)
            if frame.payload is None:
                acknowledged[to].add(frame.number)
            answer, arrived = ends[to].receive(frame, at)
            delivered[to] += [each.payload for each in arrived if each.payload is not None]
            if answer:
                put(answer, 1 - to, at)
        for me, end in enumerate(ends):
            for frame in end.again(now):
                put(frame, 1 - me, now)
    assert not any(end.again(inf) for end in ends), "no message is sent again that has been acknowledged"
    return delivered, ends


@settings(deadline=None, max_examples=60)
@given(st.tuples(st.integers(0, 8), st.integers(0, 8)), st.data())
def test_every_message_arrives_once_and_in_order(sent: tuple[int, int], data: st.DataObject) -> None:
    """Any losses, delays, copies and reorderings, as long as the link does not lose for ever."""
    fates = data.draw(st.lists(st.lists(st.floats(0, 3), max_size=3), max_size=60))
    pending = iter(fates)
    delivered, _ = exchanged(sent, lambda: next(pending, [0.0]))
    assert delivered == [[bytes([1, n]) for n in range(sent[1])], [bytes([0, n]) for n in range(sent[0])]]


def test_an_undisturbed_link_sees_each_message_once() -> None:
    puts = count()

    def fate() -> list[float]:
        next(puts)
        return [0.001]

    _, ends = exchanged((5, 3), fate)
    assert next(puts) == 2 * (5 + 3), "a message and its acknowledgement"
    assert [end.duplicates for end in ends] == [0, 0]


def test_copies_are_recognised() -> None:
    _, ends = exchanged((5, 0), lambda: [0.0, 0.01])
    assert ends[1].duplicates == 5


def test_a_link_that_loses_everything_is_given_up() -> None:
    with pytest.raises(GaveUp, match="15 tries") as error:
        exchanged((1, 0), list, limit_s=1e9)
    assert error.value.tries == 15
    with pytest.raises(GaveUp) as error:
        exchanged((1, 0), list, limit_s=2.0)
    assert 2.0 <= error.value.seconds <= 2.0 + SHORTEST_S


def test_time_outs_double() -> None:
    channel = Channel()
    channel.send(0, b"", 0.0)
    due, now = [], 0.0
    while len(due) < 5:
        now += 0.01
        due += [now] * len(channel.again(now))
    assert due == pytest.approx([0.2, 0.6, 1.4, 2.4, 3.4], abs=0.03), "after 0.2, 0.4, 0.8, and then 1 s"


def test_the_time_out_follows_the_round_trip() -> None:
    """By hand: SRTT 0.1, RTTVAR 0.05; then a sample of 0.18: error 0.08, SRTT 0.11, RTTVAR 0.0575."""
    trip = RoundTrip()
    trip.measured(0.1)
    assert trip.timeout_s == pytest.approx(0.1 + 4 * 0.05)
    trip.measured(0.18)
    assert trip.timeout_s == pytest.approx(0.11 + 4 * 0.0575)


def test_a_message_sent_twice_gives_no_sample() -> None:
    channel = Channel()
    channel.send(0, b"", 0.0)
    assert channel.again(0.3)
    channel.receive(Frame(0), 0.301)
    assert channel.round_trip.timeout_s == pytest.approx(0.2), "as if nothing had been measured"


# The faults themselves.


def test_a_share_of_the_messages_is_struck_from_the_step_on() -> None:
    lossy = Lossy([Fail.parse("rank=1,step=10,how=drop,share=0.25,until=20")], rank=1, seed=0)
    frames = [Frame(number, payload=b"") for number in range(2000)]
    at = {step: sum(lossy.fate(step, 0, frame) == [] for frame in frames) for step in (9, 10, 19, 20)}
    assert at[9] == at[20] == 0
    assert 420 < at[10] < 580, "a quarter of 2,000; farther off once in ten thousand seeds"
    assert lossy.struck == {"rank=1,step=10,how=drop,share=0.25,until=20": at[10] + at[19]}


def test_each_kind_of_fault() -> None:
    def fate(text: str, payload: bytes | None = b"abcd") -> list[Copy]:
        return Lossy([Fail.parse(f"rank=0,step=0,share=1,how={text}")], 0, 0).fate(0, 1, Frame(0, payload=payload))

    assert fate("drop") == []
    assert fate("delay,delay=0.5") == [Copy(0.5)]
    assert fate("duplicate") == [Copy(), Copy()]
    [struck] = fate("corrupt")
    assert struck.flipped is not None
    assert fate("corrupt", payload=None) == [Copy()], "an acknowledgement has nothing to corrupt"


@given(st.binary(min_size=1), st.floats(0, 1, exclude_max=True))
def test_a_corrupted_payload_differs_in_one_bit_which_its_checksum_finds(payload: bytes, flipped: float) -> None:
    damaged = with_flipped_bit(payload, flipped)
    assert len(damaged) == len(payload)
    assert sum((one ^ other).bit_count() for one, other in zip(payload, damaged, strict=True)) == 1
    frame = Channel(checksums=True).send(0, payload, 0.0)
    receiver = Channel()
    assert receiver.receive(replace(frame, payload=damaged), 0.0) == (None, []), "as if it had been lost"
    assert receiver.corrupted == 1
    assert receiver.receive(frame, 0.0)[1] == [frame]
    unchecked = Channel().send(0, payload, 0.0)
    [delivered] = Channel().receive(replace(unchecked, payload=damaged), 0.0)[1]
    assert delivered.payload == damaged, "without a checksum it is not noticed"


def test_a_partition_lies_between_one_rank_and_all_others_until_it_heals() -> None:
    clock = [100.0]
    cut = [Fail.parse("rank=2,step=5,how=partition,heals=3")]
    links = {rank: Lossy(cut, rank, 0, lambda: clock[0]) for rank in range(4)}

    def separated(step: int) -> set[tuple[int, int]]:
        pairs = [(one, other) for one in links for other in links if one != other]
        return {(one, other) for one, other in pairs if not links[one].fate(step, other, Frame(0, payload=b""))}

    of_rank_2 = {pair for one in (0, 1, 3) for pair in ((one, 2), (2, one))}
    assert separated(4) == set()
    assert separated(5) == of_rank_2
    clock[0] += 2.9
    assert separated(6) == of_rank_2
    clock[0] += 0.2
    assert separated(6) == set()
    assert links[2].struck == {str(cut[0]): 6}, "three messages, twice"
    assert Lossy([Fail.parse("rank=2,step=5,how=partition")], 2, 0, lambda: 1e9).fate(9, 0, Frame(0)) == []


def test_what_is_struck_depends_on_the_message_alone() -> None:
    """The same messages are lost however the threads of a run interleave; a copy sent again may get through."""
    faults = [Fail.parse("rank=0,step=0,how=drop,share=0.5")]
    first, second = Lossy(faults, 0, 3), Lossy(faults, 0, 3)
    forwards = [first.fate(0, 1, Frame(number, payload=b"")) for number in range(100)]
    backwards = [second.fate(0, 1, Frame(number, payload=b"")) for number in reversed(range(100))]
    assert forwards == backwards[::-1]
    assert forwards != [first.fate(0, 1, Frame(number, payload=b"", copy=2)) for number in range(100)]


def test_another_ranks_messages_are_left_alone() -> None:
    lossy = Lossy([Fail.parse("rank=0,step=0,how=drop,share=1")], rank=1, seed=0)
    assert lossy.fate(5, 0, Frame(0, payload=b"")) == [Copy()]


@pytest.mark.parametrize(
    "text",
    [
        *("how=drop,share=0", "how=drop,share=1.5", "how=drop,share=nan", "how=drop,until=5", "how=drop,delay=1"),
        *("how=kill,share=0.5", "how=kill,until=20", "how=delay,delay=0", "how=delay,delay=inf", "how=lose"),
        *("how=partition,share=1", "how=partition,until=20", "how=partition,heals=0", "how=drop,heals=2"),
    ],
)
def test_what_does_not_fit_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="does not fit: write it as --fail"):
        Fail.parse(f"rank=1,step=10,{text}")


@pytest.mark.parametrize(
    "text",
    [
        *("how=kill", "how=drop", "how=drop,share=0.5", "how=delay,until=20,delay=0.3"),
        *("how=corrupt,share=1", "how=partition", "how=partition,heals=2.5"),
    ],
)
def test_a_fault_says_what_was_asked_for(text: str) -> None:
    fail = Fail.parse(f"rank=1,step=10,{text}")
    assert Fail.parse(str(fail)) == fail
