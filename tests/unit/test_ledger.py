"""Invariants of the bookkeeping under every policy, in random orders of events: the ledger alone."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farandole.parameter_server.core.events import Dropped, Event, Finished, Grant, Move
from farandole.parameter_server.core.ledger import Ledger
from farandole.parameter_server.core.policies import BSP, Asynchronous, Push
from tests.unit.test_policies import EVERY_POLICY, POLICIES, QUICK

EVENTS = st.lists(
    st.tuples(st.sampled_from(["go", "go", "go", "go", "again", "tick", "remove"]), st.integers(0, 5)), max_size=120
)


@EVERY_POLICY
@QUICK
@given(st.data(), st.integers(1, 6), st.integers(1, 40), EVENTS)
def test_every_gradient_counts_once_and_staleness_is_what_others_did_in_between(
    name: str, data: st.DataObject, workers: int, limit: int, events: list[tuple[str, int]]
) -> None:
    ledger = Ledger(data.draw(POLICIES[name])(range(workers)), limit)
    waiting: set[int] = set()
    computing: dict[int, tuple[int, int]] = {}  # worker → clock, updates by others at its start
    pushed: dict[str, int] = {}  # content → updates by others at its start
    removed: set[int] = set()
    finished: set[int] = set()
    counted: Counter[str] = Counter()
    unused: Counter[int] = Counter()
    duplicates: Counter[int] = Counter()
    last: dict[int, Push] = {}
    updates, own, begun = 0, Counter[int](), 0

    def carry_out(happens: list[Event]) -> None:
        nonlocal updates, begun
        for event in happens:
            if isinstance(event, Grant):
                assert event.worker in waiting
                waiting.discard(event.worker)
                begun += 1
                computing[event.worker] = event.clock, updates - own[event.worker]
            elif isinstance(event, Finished):
                waiting.discard(event.worker)
                finished.add(event.worker)
            elif isinstance(event, Dropped):
                unused[event.worker] += event.unused
            elif isinstance(event, Move):
                for part in event.parts:
                    content = part.gradient.content
                    assert part.first == (not counted[content])
                    if part.first:
                        assert part.staleness == updates - own[part.gradient.worker] - pushed[content]
                    counted[content] += part.first
                updates += 1
                for part in event.parts:
                    own[part.gradient.worker] += part.first

    for now, (event, number) in enumerate(events):
        worker = number % workers
        if event == "tick":
            carry_out(ledger.tick(now))
        elif event == "remove" and number == workers - 1:
            removed.add(worker)
            waiting.discard(worker)
            happens, _ = ledger.remove(worker, now)
            carry_out(happens)
        elif event == "again" and worker in last:
            before = ledger.updates
            happens = ledger.push(last[worker], "again", now)
            assert [type(one) for one in happens] == [Dropped]
            assert ledger.updates == before
            duplicates[worker] += 1
        elif worker in computing:
            clock, read_at = computing.pop(worker)
            push = last[worker] = Push(worker, clock, 1 / workers)
            content = f"{worker} {clock}"
            pushed[content] = read_at
            carry_out(ledger.push(push, content, now))
        elif worker not in waiting | finished:
            waiting.add(worker)
            carry_out(ledger.pull(worker, now, name=now))
    assert updates == ledger.updates
    assert set(counted.values()) <= {0, 1}
    for worker in range(workers):
        own_pushes = [content for content in pushed if content.startswith(f"{worker} ")]
        assert sum(counted[content] for content in own_pushes) + unused[worker] <= len(own_pushes)
    if not ledger.policy.in_rounds:
        assert begun <= limit
    assert not waiting & removed


def test_when_the_work_has_run_out_those_that_wait_are_told() -> None:
    ledger = Ledger(Asynchronous([1, 2]), limit=2)
    ledger.hold_from = 1
    assert [type(event) for event in ledger.pull(1, 0.0)] == [Grant]
    ledger.push(Push(1, 0, 0.5), None, 0.0)
    assert ledger.pull(1, 1.0, "second") == [], "it is held"
    granted, finished = ledger.pull(2, 2.0, "first")
    assert isinstance(granted, Grant)
    assert (granted.worker, granted.request) == (2, "first")
    assert finished == Finished(1, "second")


def test_a_gradient_in_ranges_counts_when_it_is_whole() -> None:
    ledger = Ledger(BSP([1]), limit=None, ranges=2)
    ledger.pull(1, 0.0)
    push = Push(1, 0, 1.0)
    assert ledger.push(push, "half", 0.0, "a", part=1) == []
    assert ledger.incomplete(1, 0) == "half"
    [again] = ledger.push(push, "half", 0.0, "b", part=1)
    assert isinstance(again, Dropped)
    assert again.requests == ["b"]
    [move] = ledger.push(push, "whole", 0.0, "c", part=0)
    assert isinstance(move, Move)
    assert [(part.gradient.content, part.gradient.requests) for part in move.parts] == [("whole", ["a", "c"])]
    assert ledger.incomplete(1, 0) is None


@pytest.mark.parametrize("half", [False, True])
def test_what_a_removed_worker_leaves_is_counted(half: bool) -> None:
    ledger = Ledger(BSP([1, 2]), limit=None, ranges=2)
    ledger.pull(1, 0.0)
    ledger.push(Push(1, 0, 0.5), "g", 0.0, part=0 if half else -1)
    ledger.pull(1, 0.0)
    _, removed = ledger.remove(1, 0.0)
    assert removed == (not half, 1 if half else 2, int(half))
    [late] = ledger.push(Push(1, 1, 0.5), "g", 0.0)
    assert isinstance(late, Dropped)
    assert ledger.late == 1
