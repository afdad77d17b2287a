"""The log of messages: bytes once, collectives as one operation, and the same number at both ends of a message."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

from farandole.runtime.trace import chrome_trace
from farandole.runtime.traffic import Operation, Traffic, from_json, numbered, to_json

PAIR = ((0, 1), 0)


def logged(traffic: Traffic, rank: int = 0, first: int = 0) -> list[Operation]:
    return traffic.operations(rank, first, len(traffic))


def test_the_messages_of_a_collective_are_one_operation_also_where_another_one_is_within_it() -> None:
    traffic = Traffic()
    group, part = traffic.join([4, 2, 7]), traffic.join([4, 2])
    with traffic.collective(group, "all-reduce", 24):
        traffic.sent(group, 1, 0, 8)
        traffic.received(group, 2, 0, 8)
        with traffic.collective(part, "all-gather", 12):
            traffic.sent(part, 1, 0, 5)
    traffic.sent(part, 1, 3, 100)
    collective, message = logged(traffic, 4)
    assert (collective.kind, collective.nbytes, collective.size) == ("all-reduce", 13, 24)
    assert collective.group == ((4, 2, 7), 0)
    assert collective.end > collective.start
    assert (message.kind, message.nbytes, message.peer, message.tag) == ("send", 100, 2, 3)


def test_a_collective_does_not_swallow_what_another_thread_sends_meanwhile() -> None:
    traffic = Traffic()
    group = traffic.join([0, 1])
    with ThreadPoolExecutor(1) as pool, traffic.collective(group, "all-reduce", 8):
        pool.submit(traffic.sent, group, 1, 0, 50).result()
        traffic.sent(group, 1, 0, 8)
    message, collective = logged(traffic)
    assert (message.kind, message.nbytes, message.thread) == ("send", 50, 1)
    assert (collective.kind, collective.nbytes, collective.thread) == ("all-reduce", 8, 0)


def test_a_collective_that_fails_keeps_its_bytes_and_is_over() -> None:
    traffic = Traffic()
    group = traffic.join([0, 1])
    try:
        with traffic.collective(group, "all-reduce", 8):
            traffic.sent(group, 1, 0, 8)
            raise ConnectionError
    except ConnectionError:
        traffic.sent(group, 1, 0, 2)
    assert [(each.kind, each.nbytes) for each in logged(traffic)] == [("all-reduce", 8), ("send", 2)]


def test_both_ends_of_a_message_have_one_number_though_the_log_begins_late_and_tags_overtake_each_other() -> None:
    sender, receiver = Traffic(), Traffic()
    for traffic in (sender, receiver):
        assert [traffic.join([0, 1]), traffic.join([0, 1])] == [0, 1]
    for tag, nbytes in ((5, 1), (5, 2), (6, 3), (5, 4)):  # the first two before the clock
        sender.sent(0, 1, tag, nbytes)
    sender.sent(1, 1, 5, 10)
    for group, tag, nbytes in ((1, 5, 10), (0, 6, 3), (0, 5, 1), (0, 5, 2), (0, 5, 4)):
        receiver.received(group, 0, tag, nbytes)
    sent = logged(sender, 0, first=2)
    found = numbered([*sent, *logged(receiver, 1)])
    numbers = {each.nbytes: each.place for each in found if each.kind == "send"}
    assert sorted(numbers.values()) == [0, 1, 2]
    received = {each.nbytes: each.place for each in found if each.kind == "receive"}
    assert received == {1: -1, 2: -1, **numbers}, "two were sent before the clock began"


def test_the_way_to_rank_0_changes_nothing() -> None:
    operations = [
        Operation(0, "send", 1.0, 1.0, 8, 0, PAIR, peer=1, tag=3, place=0),
        Operation(0, "all-reduce", 1.5, 2.0, 16, 16, ((0, 1), 1), thread=2),
        Operation(0, "receive", 2.5, 2.5, 8, 0, PAIR, peer=1),
    ]
    assert from_json(to_json(operations)) == operations


def test_the_trace_has_them_on_tracks_of_their_own_with_their_groups() -> None:
    operations = [
        Operation(1, "all-reduce", 0.5, 0.75, 12, 16, ((3, 1), 0), thread=1),
        Operation(1, "send", 1.0, 1.0, 8, 0, PAIR, peer=0, place=0),
    ]
    trace = json.loads(json.dumps(chrome_trace([], [1], operations=operations)))
    assert trace["otherData"] == {"groups": [[3, 1], [0, 1]]}
    (collective, message) = (event for event in trace["traceEvents"] if event["ph"] == "X")
    assert collective["args"] == {"operation": "all-reduce", "bytes": 12, "size": 16, "group": 0}
    assert message["args"] == {"operation": "send", "bytes": 8, "peer": 0, "message": 0}
    assert (collective["name"], message["name"]) == ("all-reduce", "send to 0")
    assert (collective["dur"], message["dur"]) == (250_000, 0)
    names = {event["tid"]: event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "thread_name"}
    assert names == {collective["tid"]: "messages of thread 1", message["tid"]: "messages"}
