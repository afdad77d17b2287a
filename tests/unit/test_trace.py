"""Traces: the split of communication into waiting and transferring, and the Chrome format."""

from __future__ import annotations

import json

import pytest

from farandole.runtime.trace import Span, Trace, chrome_trace, from_json, seconds_by_category, split_waits, to_json


def test_waiting_ends_when_the_last_rank_arrives() -> None:
    spans = [
        Span(0, "all-reduce", "communicate", 1.0, 5.0, "a#1"),
        Span(1, "all-reduce", "communicate", 4.0, 5.5, "a#1"),
    ]
    seconds = seconds_by_category(split_waits(spans), ranks=range(2))
    assert seconds["wait"] == pytest.approx([3.0, 0.0])
    assert seconds["communicate"] == pytest.approx([1.0, 1.5])


def test_a_rank_that_left_before_the_last_one_came_has_only_waited() -> None:
    spans = [Span(0, "send", "communicate", 1.0, 2.0, "a#1"), Span(1, "send", "communicate", 4.0, 5.0, "a#1")]
    seconds = seconds_by_category(split_waits(spans), ranks=range(2))
    assert seconds["wait"] == pytest.approx([1.0, 0.0])
    assert seconds["communicate"] == pytest.approx([0.0, 1.0])


def test_time_is_neither_lost_nor_counted_twice() -> None:
    spans = [
        Span(rank, "all-reduce", "communicate", start, 9.0, f"a#{number}")
        for number in range(3)
        for rank, start in enumerate((number + 0.1, number + 0.7, number + 0.2))
    ]
    before = sum(span.end - span.start for span in spans)
    assert sum(part.end - part.start for part in split_waits(spans)) == pytest.approx(before)


def test_inner_spans_are_part_of_outer_ones() -> None:
    trace = Trace(0)
    with trace.span("step", "compute"), trace.span("layer", "compute"):
        pass
    assert [(span.name, span.depth) for span in trace.spans] == [("layer", 1), ("step", 0)]
    outer = trace.spans[1]
    assert seconds_by_category(trace.spans, [0])["compute"] == pytest.approx([outer.end - outer.start])


def test_collectives_are_numbered_alike_on_all_ranks() -> None:
    traces = [Trace(0), Trace(1)]
    for trace in traces:
        for _ in range(2):
            with trace.span("all-reduce", "communicate", collective=True):
                pass
    assert [span.key for span in traces[0].spans] == [span.key for span in traces[1].spans]
    assert len({span.key for span in traces[0].spans}) == 2


def test_a_message_of_an_earlier_group_is_not_taken_for_one_of_the_same_name() -> None:
    """A restored stage counts its messages from the first again."""
    sender, receiver = Trace(0), Trace(1)
    for change in (0, 1):
        sender.regroup(change)
        receiver.regroup(change)
        with sender.sending("send activation 0", "run 1: 0"), receiver.receiving("activation 0", "run 1: 0"):
            pass
    sent, received = ([span.releases or span.key for span in trace.spans] for trace in (sender, receiver))
    assert sent == received
    assert len(set(sent)) == 2


def test_spans_survive_the_way_to_rank_0() -> None:
    spans = [Span(3, "forward", "compute", 0.25, 0.5, "k", 1)]
    assert from_json(to_json(spans)) == spans


def test_chrome_trace_is_what_perfetto_reads() -> None:
    spans = [Span(1, "forward", "compute", 10.0, 10.5), Span(0, "all-reduce", "communicate", 10.5, 10.75)]
    trace = json.loads(json.dumps(chrome_trace(spans, ranks=range(2))))
    complete = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert [(event["pid"], event["ts"], event["dur"]) for event in complete] == [(1, 0.0, 5e5), (0, 5e5, 2.5e5)]
    names = {event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "process_name"}
    assert names == {"rank 0", "rank 1"}
