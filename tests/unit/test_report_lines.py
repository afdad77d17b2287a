"""A parameter server's metrics have a line for every step that its summary counts, whichever rank dies when."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import permutations
from types import SimpleNamespace
from typing import Any

import pytest

from farandole.parameter_server.core.policies import BSP, Apply, Partial, Policy, Push
from farandole.parameter_server.header import Header, Kind
from farandole.parameter_server.report_lines import ByCount, ByStep, ReportLines
from farandole.parameter_server.reports import Reports

WORKERS = [3, 4, 5]
STEPS = 12


def report(worker: int, clock: int) -> Header:
    return Header(Kind.REPORT, source=worker, clock=clock, samples=1)


def train(policy: Policy, grouped: ReportLines, dies: int | None, after: int, order: random.Random) -> tuple[int, int]:
    """Drive the policy with reports that follow the pushes; return the numbers of updates and lines."""
    updates, lines = 0, 0
    at_work: dict[int, int] = {}
    on_their_way: dict[int, list[Header]] = {worker: [] for worker in WORKERS}
    pushed = 0

    def count(actions: Sequence[object]) -> None:
        nonlocal updates
        updates += sum(isinstance(action, Apply) for action in actions)

    def deliver(worker: int) -> None:
        nonlocal lines
        if on_their_way[worker]:
            lines += len(grouped.add(on_their_way[worker].pop(0)))

    while policy.clocks:
        worker = order.choice(list(policy.clocks))
        deliver(order.choice(WORKERS))
        if worker == dies and pushed >= after:
            on_their_way[worker].clear()  # it dies before its report
            count(policy.leave(worker))
            lines += len(grouped.leave(worker))
        elif worker in at_work:
            clock = at_work.pop(worker)
            count(policy.push(Push(worker, clock, 1 / len(WORKERS)), 0.0))
            on_their_way[worker].append(report(worker, clock))
            pushed += worker == dies
        elif policy.next_clock(worker) >= STEPS:
            while on_their_way[worker]:
                deliver(worker)
            count(policy.leave(worker))
            lines += len(grouped.leave(worker))
        elif policy.may_start(worker):
            at_work[worker] = policy.next_clock(worker)
            policy.started(worker, 0.0)
    return updates, lines + len(grouped.end())


@pytest.mark.parametrize("after", [0, 1, 5, STEPS - 1])
@pytest.mark.parametrize("dies", [None, *WORKERS])
def test_as_many_lines_as_steps_whoever_dies(dies: int | None, after: int) -> None:
    for seed in range(20):
        order = random.Random(seed)
        assert train(BSP(WORKERS), ByStep(WORKERS), dies, after, order) == (STEPS, STEPS)
        partial, late_count_later = Partial(WORKERS, enough=2), ByStep(WORKERS, waits=False)
        assert train(partial, late_count_later, dies, after, order) == (STEPS, STEPS)


def test_a_line_has_the_reports_of_its_step_in_whatever_order_they_come() -> None:
    lines = ByStep([3, 4])
    assert lines.add(report(3, 0)) == []
    assert lines.add(report(3, 1)) == []
    assert [[each.clock for each in line] for line in lines.add(report(4, 0))] == [[0, 0]]
    assert [[each.clock for each in line] for line in lines.leave(4)] == [[1]], "4 has died: 3 was alone in step 1"


def test_where_steps_do_not_wait_a_late_report_counts_with_the_next_line() -> None:
    lines = ByStep([3, 4], waits=False)
    assert lines.add(report(3, 0)) == []
    assert [len(line) for line in lines.add(report(3, 1))] == [1], "3 has gone beyond step 0"
    assert lines.add(report(4, 0)) == []
    assert [len(line) for line in lines.add(report(4, 2))] == [2]
    assert [len(line) for line in lines.end()] == [1]


def test_where_the_living_do_a_dead_workers_work_lines_are_counted() -> None:
    lines = ByCount(3)
    assert [len(lines.add(report(3, clock))) for clock in range(6)] == [0, 0, 1, 0, 0, 1]
    assert lines.leave(4) == []
    lines.add(report(3, 6))
    assert [len(line) for line in lines.end()] == [1]


def test_a_lines_loss_does_not_depend_on_the_order_in_which_reports_arrive() -> None:
    """Added up as they arrive, these three would have sums that differ in the last digit."""
    losses = {3: 0.1, 4: 0.2, 5: 0.3}
    logged: list[dict[str, float]] = []
    recorder: Any = SimpleNamespace(
        world=SimpleNamespace(rank=1, begin_step=lambda step: None),
        writes=True,
        elapsed_s=0.0,
        watch=lambda *_: None,
        log=lambda **line: logged.append(line),
    )
    for order in permutations(losses):
        reports = Reports(recorder, ByStep(WORKERS), STEPS)
        for worker in order:
            reports.add(Header(Kind.REPORT, source=worker, worker=worker, clock=0, samples=1, loss=losses[worker]))
    assert len({sum(losses[worker] for worker in order) for order in permutations(losses)}) == 2
    assert len(logged) == 6
    assert len({line["loss"] for line in logged}) == 1
