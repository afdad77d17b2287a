"""Every pipeline schedule, for all stages and micro-batches: order, memory and bubble are the paper's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from farandole.errors import UsageError
from farandole.model_parallel import step_order
from farandole.model_parallel.checker import ScheduleError, check, execute
from farandole.model_parallel.placement import Placement
from farandole.model_parallel.schedules import FLUSHED, NAMES, choose, pipedream
from farandole.model_parallel.step_costs import most_held
from farandole.model_parallel.steps import (
    Backward,
    BackwardInput,
    BackwardWeight,
    Computation,
    Forward,
    ReceiveActivation,
    ReceiveGradient,
    Schedule,
    SendActivation,
    SendGradient,
    Step,
    Times,
    Update,
    with_messages,
)

ROOT = Path(__file__).parents[2]
STAGES, MICRO_BATCHES = range(1, 9), range(1, 17)
TIMES = [Times(), Times(1, 1.2, 0.8), Times(2, 3, 1), Times(1, 1, 2), Times(2, 0.5, 1), Times(0.5, 2, 1)]
TWO_CHUNKS = {"zb-v", "dualpipe"}
CHOICES = [*((name, 1 + (name in TWO_CHUNKS)) for name in NAMES if name != "interleaved"),
           *(("interleaved", v) for v in (1, 2, 3))]  # fmt: skip


def idle_time(schedule: Schedule, p: int, m: int, times: Times) -> float | None:
    """Return each stage's idle time by the formula of the schedule's docstring: p stages, m micro-batches, one batch.

    None: the docstring has no formula for these numbers.
    """
    forward, inputs, weights = times.forward, times.backward_input, times.backward_weight
    match schedule.name:
        case "naive":
            return m * (p - 1) * times.both
        case "gpipe" | "1f1b" | "pipedream":
            return (p - 1) * times.both
        case "interleaved":
            return (p - 1) * times.both / schedule.chunks
        case "zero-bubble":
            return (p - 1) * (forward + inputs) - (min(p, m) - 1) * min(forward, inputs, weights)
        case "zb-h2":
            return max((p - 1) * forward, (p - 1) * (forward + inputs - 2 * weights)) if full_h2(p, m, times) else None
        case "zb-v":
            return None
        case "dualpipe":
            return (p / 2 - 1) * forward if forward == inputs == weights else None
    raise NotImplementedError(f"no formula for {schedule.name}")


def full_h2(p: int, m: int, times: Times) -> bool:
    """Return whether ZB-H2 has as many micro-batches as it can hold, and gradients that fit into the gaps."""
    return m >= 2 * p - 1 and times.backward_weight <= times.forward


def idle_of_period(schedule: Schedule, p: int, m: int, times: Times) -> float | None:
    """Return the idle time per batch of the stage that works longest, where batches follow each other, by formula."""
    forward, inputs, weights = times.forward, times.backward_input, times.backward_weight
    match schedule.name:
        case "zero-bubble":
            return (p - 1) * (forward + inputs) - (min(p, m) - 1) * min(forward, weights)
        case "zb-h2":
            return max(0.0, (p - 1) * (forward + inputs) - min(2 * (p - 1), m - 1) * min(forward, weights))
        case "zb-v" if forward == inputs == weights:
            return max(0, 2 * p - 1 - m) * forward
        case "zb-v":
            full = m >= 2 * p - 1 and weights <= min(forward, inputs)
            return (p - 1) * (max(forward, inputs) - weights) if full else None
    return idle_time(schedule, p, m, times)  # the first stage is both the first to begin and the last to end


def stash(schedule: Schedule, s: int, p: int, m: int) -> int:
    """Return the most chunks' activations that stage s holds, by the formula of the schedule's docstring."""
    v = schedule.chunks
    match schedule.name:
        case "naive":
            return 1
        case "gpipe":
            return m
        case "1f1b" | "pipedream":
            return min(p - s, m)
        case "interleaved":
            return min(2 * (p - s - 1) + (v - 1) * p + 1, v * m)
        case "zero-bubble":
            return min(p, m)
        case "zb-h2":
            return min(2 * p - 1, m)
        case "zb-v":
            return min(2 * p, 2 * m, m + s + 1)
        case "dualpipe":
            return p + 1
    raise NotImplementedError(f"no formula for {schedule.name}")


def borders(schedule: Schedule, p: int) -> int:
    """Return how often a micro-batch goes from one stage to another on its way through the model."""
    match schedule.name:
        case "zb-v":
            return 2 * (p - 1)
        case "dualpipe":
            return p - 1
    return p * schedule.chunks - 1 if p > 1 else 0


def sizes(schedule: Schedule) -> Iterator[tuple[int, int]]:
    for stages in STAGES:
        for micro_batches in MICRO_BATCHES:
            if schedule.name == "interleaved" and micro_batches % stages:
                continue
            if schedule.name == "dualpipe" and (stages % 2 or micro_batches % 2 or micro_batches < 2 * stages):
                continue
            yield stages, micro_batches


@pytest.mark.parametrize(("name", "chunks"), CHOICES)
def test_order_memory_and_bubble(name: str, chunks: int) -> None:
    """The checker's rules hold; memory and idle time, counted from the steps, are exactly the formulas'."""
    schedule = choose(name, chunks)
    assert (schedule.name, schedule.chunks) == (name, chunks)
    for number, (stages, micro_batches) in enumerate(sizes(schedule)):
        # Equal times everywhere; of the other five two, in turn.
        for times in (TIMES[0], TIMES[1 + number % 5], TIMES[1 + (number + 2) % 5]):
            # The order of a stage's steps, which the rules are about, does not depend on times.
            execution = (check if times is TIMES[0] else execute)(schedule, stages, micro_batches, times)
            where = f"{stages} stages, {micro_batches} micro-batches, {times}"
            assert execution.times == times
            assert execution.stash == [stash(schedule, s, stages, micro_batches) for s in range(stages)], where
            work, idle = micro_batches * times.both, idle_time(schedule, stages, micro_batches, times)
            most = work + (stages - 1) * times.both * (micro_batches if name == "naive" else 1)
            assert execution.period <= execution.total <= most + 1e-9, f"{where}: no more idle time than 1F1B"
            if idle is not None:
                assert execution.total == pytest.approx(work + idle), where
                assert execution.bubble_of_total == pytest.approx(idle / (idle + work)), where
                assert execution.bubble_of_ideal == pytest.approx(idle / work), where
            idle = idle_of_period(schedule, stages, micro_batches, times)
            if idle is not None:
                assert execution.period == pytest.approx(work + idle), where
                assert execution.bubble_of_period == pytest.approx(idle / (idle + work)), where
            assert sum(execution.messages) == 2 * micro_batches * borders(schedule, stages), where


def repeated(schedule: Schedule, batches: int) -> Schedule:
    """Return several batches, one after another, without updates: the messages of a training's steps."""

    def computations(stage: int, stages: int, micro_batches: int) -> Iterator[Computation]:
        each = micro_batches // batches
        for batch in range(batches):
            for step in schedule.computations(stage, stages, each):
                if not isinstance(step, Update):
                    yield replace(step, micro_batch=step.micro_batch + batch * each)

    return replace(schedule, computations=computations)


@pytest.mark.parametrize("name", FLUSHED)
def test_each_further_batch_takes_the_period(name: str) -> None:
    """The longest stage decides: two batches last one period longer than one, and three two."""
    schedule = choose(name)
    for stages, micro_batches in [(1, 2), (2, 4), (4, 8), (4, 12), (5, 10), (5, 15)]:
        if (stages, micro_batches) not in sizes(schedule):
            continue
        for times in TIMES:
            once = check(schedule, stages, micro_batches, times)
            for batches in (2, 3):
                found = execute(repeated(schedule, batches), stages, batches * micro_batches, times).total
                assert found == pytest.approx(once.total + (batches - 1) * once.period)


def test_what_the_papers_say() -> None:
    """Published figures, at 4 stages and 8 micro-batches."""
    naive, gpipe, one_f_one_b, zero_bubble = (
        check(choose(name), 4, 8) for name in ("naive", "gpipe", "1f1b", "zero-bubble")
    )
    assert naive.bubble_of_total == pytest.approx(3 / 4)
    assert gpipe.bubble_of_total == pytest.approx(3 / 11)
    assert one_f_one_b.bubble_of_total == pytest.approx(3 / 11)
    assert check(choose("interleaved", 2), 4, 8).bubble_of_ideal == pytest.approx(3 / (2 * 8))
    assert zero_bubble.idle(0) == pytest.approx(one_f_one_b.idle(0) / 3)
    assert gpipe.stash == [8, 8, 8, 8]
    assert one_f_one_b.stash == [4, 3, 2, 1]
    assert naive.stash == [1, 1, 1, 1]
    twice_the_memory = check(choose("zb-h2"), 4, 8)
    assert twice_the_memory.bubble_of_period == 0
    assert twice_the_memory.stash == [2 * 4 - 1] * 4
    assert zero_bubble.stash == [4] * 4
    v = check(choose("zb-v"), 4, 8)
    assert v.bubble_of_period == 0
    assert v.stash == [2 * 4] * 4, "of pieces half as large: as much as 1F1B's first stage holds"
    dualpipe = check(choose("dualpipe"), 4, 8)
    assert dualpipe.stash == [4 + 1] * 4
    assert [dualpipe.idle(stage) for stage in range(4)] == [1.0] * 4
    # Megatron-LM's warm-up, 2(p − s − 1) + (v − 1)p forward passes of a chunk, and the one that follows it.
    assert check(choose("interleaved", 2), 4, 8).stash == [11, 9, 7, 5]


def test_the_documentations_table_is_what_the_checker_counts() -> None:
    """Idle time per batch and micro-batches held, at 4 stages and 8 micro-batches, with equal times."""
    text = (ROOT / "docs" / "model_parallel.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if "/schedules/" in line]
    assert {row[0].split("`")[1] for row in rows} == set(NAMES)
    for row in rows:
        schedule = choose(row[0].split("`")[1])
        execution = check(schedule, 4, 8)
        assert float(row[2]) == pytest.approx(execution.period - 8 * execution.times.both), row
        assert [float(held) for held in row[4].split(",")] == [
            held / schedule.placement.passes for held in execution.stash
        ], row


def test_interleaving_wants_whole_groups() -> None:
    with pytest.raises(UsageError, match=r"6 micro-batches are not whole groups of 4: .* as 8"):
        execute(choose("interleaved", 2), 4, 6)


def overlapping(computations: Iterable[Computation], stage: int, stages: int, placement: Placement) -> Iterator[Step]:
    """DualPipe's steps, if a forward and a backward pass of opposite directions overlap: both send when both are done.

    As in the paper's figure the two middle stages' first such pair does not overlap.
    """
    steps = list(with_messages(computations, stage, stages, placement))
    kinds = (Forward, Backward, BackwardInput, BackwardWeight)
    places = [place for place, step in enumerate(steps) if isinstance(step, kinds)]
    first = min(place for place, step in enumerate(steps) if isinstance(step, Backward))
    for before, after in pairwise(places):
        pair = steps[before], steps[after]
        if isinstance(pair[0], Forward) and isinstance(pair[1], Backward):
            if after == first and stages // 2 - 1 <= stage <= stages // 2:
                continue
            start = before - isinstance(steps[before - 1], ReceiveActivation)
            end = after + 1 + isinstance(steps[after + 1], SendGradient)
            part = steps[start:end]
            steps[start:end] = [
                *(step for step in part if isinstance(step, ReceiveActivation | ReceiveGradient)),
                *pair,
                *(step for step in part if isinstance(step, SendActivation | SendGradient)),
            ]
    return iter(steps)


@pytest.mark.parametrize("stages", [2, 4, 6, 8, 16])
def test_dualpipe_with_overlapping_passes_has_the_papers_bubble(stages: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """(p/2 − 1)(F&B + B − 3W), B the whole backward pass, where F&B takes as long as both passes; and half without."""
    for micro_batches in (2 * stages, 3 * stages):
        plain = check(choose("dualpipe"), stages, micro_batches)
        with monkeypatch.context() as patch:
            patch.setattr(step_order, "with_messages", overlapping)
            execution = check(choose("dualpipe"), stages, micro_batches)
        forward, backward, weights = 1, 2, 1
        bubble = (stages / 2 - 1) * ((forward + backward) + backward - 3 * weights)
        assert execution.total - 3 * micro_batches == pytest.approx(bubble)
        assert plain.total - 3 * micro_batches == pytest.approx(bubble / 2)
        assert execution.stash == [stages + 1] * stages


@pytest.mark.parametrize(
    ("stages", "micro_batches", "says"),
    [
        (3, 8, "dualpipe takes an even number of stages, as 4, not 3"),
        (1, 8, "dualpipe takes an even number of stages, as 2, not 1"),
        (4, 9, "an even number of micro-batches, at least 2 for each stage: with 4 stages 10, not 9"),
        (4, 6, "an even number of micro-batches, at least 2 for each stage: with 4 stages 8, not 6"),
    ],
)
def test_dualpipe_wants_pairs_of_stages_and_enough_micro_batches(stages: int, micro_batches: int, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        execute(choose("dualpipe"), stages, micro_batches)


def test_each_micro_batch_goes_in_one_direction() -> None:
    right = choose("dualpipe")

    def in_both(stage: int, stages: int, micro_batches: int) -> Iterator[Computation]:
        yield from (step for step in right.computations(stage, stages, micro_batches) if not isinstance(step, Update))
        yield from (Forward(0, chunk=1), Backward(0, chunk=1), Update())

    def in_none(stage: int, stages: int, micro_batches: int) -> Iterator[Computation]:
        steps = right.computations(stage, stages, micro_batches)
        yield from (step for step in steps if isinstance(step, Update) or step.micro_batch != 3)

    with pytest.raises(ScheduleError, match="takes micro-batch 3 forward"):
        check(replace(right, computations=in_none), 2, 4)
    with pytest.raises(ScheduleError, match="micro-batch 0 through the model in both directions"):
        check(replace(right, computations=in_both), 2, 4)


def test_an_unknown_schedule_is_said_in_one_line() -> None:
    with pytest.raises(UsageError, match="no schedule 'zigzag': choose from naive, gpipe"):
        choose("zigzag")


def test_pipedream_sees_the_version_it_says() -> None:
    """The number of updates before a batch's forward pass, counted in the schedule itself."""
    for stages in STAGES:
        for stage in range(stages):
            updates = 0
            for step in pipedream.computations(stage, stages, 12):
                if isinstance(step, Forward):
                    assert updates == pipedream.version(stage, stages, step.micro_batch)
                updates += isinstance(step, Update)


@pytest.mark.parametrize("vertical", [False, True])
def test_pipedream_holds_as_many_versions_as_it_says(vertical: bool) -> None:
    """By hand: p − s of the batches under way; with vertical sync also those still needed, p in all."""
    for stages in STAGES:
        for stage in range(stages):
            right = stages if vertical else stages - stage
            assert pipedream.most_versions(stage, stages, 3 * stages, vertical=vertical) == right
            assert pipedream.version(stage, stages, 99, vertical=True) == 99 - (stages - 1)
    assert [pipedream.most_versions(stage, 4, 12) for stage in range(4)] == [4, 3, 2, 1], "without vertical sync"
    assert [pipedream.most_versions(stage, 4, 2, vertical=vertical) for stage in range(4)] == [1, 1, 1, 1 + vertical]
    assert [pipedream.most_versions(stage, 4, 1, vertical=vertical) for stage in range(4)] == [1, 1, 1, 1]


ONE_F_ONE_B = choose("1f1b")


def changed(change: Callable[[int, int, list[Computation]], list[Computation]]) -> Schedule:
    """1F1B with one thing wrong."""

    def computations(stage: int, stages: int, micro_batches: int) -> Iterator[Computation]:
        steps = list(ONE_F_ONE_B.computations(stage, stages, micro_batches))
        return iter(change(stage, stages, steps))

    return replace(ONE_F_ONE_B, computations=computations)


def without(steps: list[Computation], missing: Computation) -> list[Computation]:
    return [step for step in steps if step != missing]


def swapped(steps: list[Computation], first: Computation, second: Computation) -> list[Computation]:
    exchange = {first: second, second: first}
    return [exchange.get(step, step) for step in steps]


def in_halves_swapped(steps: list[Computation]) -> list[Computation]:
    halves: list[Computation] = [BackwardWeight(2), BackwardInput(2)]
    place = steps.index(Backward(2))
    return steps[:place] + halves + steps[place + 1 :]


def without_its_last_update(stage: int, stages: int, batches: int) -> Iterator[Computation]:
    """PipeDream, but for the last stage's last update."""
    steps = choose("pipedream").computations(stage, stages, batches)
    return (step for step in steps if stage < stages - 1 or step != Update(batches - 1))


def of_two_minds(stage: int, stages: int, steps: list[Computation]) -> list[Computation]:
    """The first stage waits for each gradient before it continues, the last one for all activations at its start."""
    mind = choose("naive") if stage == 0 else choose("gpipe")
    return list(mind.computations(stage, stages, 8))


@pytest.mark.parametrize(
    ("stages", "change", "message"),
    [
        (3, lambda s, steps: without(steps, Backward(3)) if s == 2 else steps, r"deadlock.*micro_batch=3"),
        (3, lambda s, steps: without(steps, Forward(7)) if s == 2 else steps, "SendActivation of micro-batch 7"),
        (1, lambda s, steps: swapped(steps, Forward(0), Backward(0)), "before forward"),
        (1, lambda s, steps: [*steps, Backward(1)], "more than once"),
        (1, lambda s, steps: [*steps, Backward(8)], "does not exist"),
        (1, lambda s, steps: [*steps, BackwardWeight(0, chunk=1)], "does not exist"),
        (1, lambda s, steps: without(steps, Backward(4)), "backward once"),
        (1, lambda s, steps: without(steps, Forward(4)), "never takes micro-batch 4"),
        (2, lambda s, steps: in_halves_swapped(steps), "halves swapped"),
        (2, lambda s, steps: without(steps, Update()), "update once"),
        (2, lambda s, steps: [Update(), *without(steps, Update())], "update once"),
    ],
)  # fmt: skip
def test_a_wrong_schedule_is_found(
    stages: int, change: Callable[[int, list[Computation]], list[Computation]], message: str
) -> None:
    wrong = changed(lambda stage, stages, steps: change(stage, steps))
    with pytest.raises(ScheduleError, match=message):
        check(wrong, stages, 8)


@pytest.mark.parametrize(("name", "chunks"), [("interleaved", 1), ("interleaved", 2), ("interleaved", 3), ("zb-v", 2)])
@pytest.mark.parametrize("stages", [1, 2, 3, 5])
def test_each_message_names_the_stage_that_has_the_other_end(stages: int, name: str, chunks: int) -> None:
    schedule = choose(name, chunks)
    there = [*range(stages), *reversed(range(stages))] if name == "zb-v" else [*range(stages)] * chunks
    for stage in range(stages):
        steps = schedule.computations(stage, stages, stages)
        for step in with_messages(steps, stage, stages, schedule.placement):
            if isinstance(step, SendActivation | SendGradient):
                assert step.peer == there[step.virtual_stage], "the stage that will use it"
            elif isinstance(step, ReceiveActivation):
                assert step.peer == there[step.virtual_stage - 1]
            elif isinstance(step, ReceiveGradient):
                assert step.peer == there[step.virtual_stage + 1]


def test_every_piece_of_a_stage_is_checked() -> None:
    """The last piece waits for no gradient, so no message is missing if its backward pass is too early."""
    right = choose("interleaved", 2)

    def computations(stage: int, stages: int, micro_batches: int) -> Iterator[Computation]:
        steps = list(right.computations(stage, stages, micro_batches))
        return iter(swapped(steps, Forward(0, chunk=1), Backward(0, chunk=1)))

    check(right, 1, 2)
    with pytest.raises(ScheduleError, match="stage 0 takes micro-batch 0 backward before forward"):
        check(replace(right, computations=computations), 1, 2)


def test_a_message_to_the_wrong_stage_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def astray(*arguments: Any) -> Iterator[Step]:
        for step in with_messages(*arguments):
            yield replace(step, peer=2) if step == SendActivation(1, 1, peer=1) else step

    monkeypatch.setattr(step_order, "with_messages", astray)
    with pytest.raises(ScheduleError, match=r"1f1b, 3 stages, 4 micro-batches: deadlock, .*stage 1 in Receive"):
        check(ONE_F_ONE_B, 3, 4)


def test_stages_that_wait_for_each_other_are_found() -> None:
    with pytest.raises(ScheduleError, match=r"deadlock.*stage 0.*stage 1"):
        check(changed(of_two_minds), 2, 8)


def test_without_a_flush_every_gradient_has_its_update() -> None:
    with pytest.raises(ScheduleError, match="right after each gradient"):
        check(replace(ONE_F_ONE_B, flushes=False), 2, 8)
    endless = choose("pipedream")
    with pytest.raises(ScheduleError, match="stage 1 must update once after each of 8 gradients"):
        check(replace(endless, computations=without_its_last_update), 2, 8)


def test_memory_is_counted_between_the_halves_too() -> None:
    steps: list[Computation] = [
        Forward(0),
        Forward(1),
        BackwardInput(0),
        BackwardInput(1),
        BackwardWeight(0),
        BackwardWeight(1),
    ]
    assert most_held(steps, {0: 10}) == 20
    assert most_held(steps, {0: 10}, late={0: 12}) == 24, "more is left between the halves than before them"
    whole: list[Computation] = [Forward(0), Forward(1), Backward(0), Backward(1)]
    assert most_held(whole, {0: 1}, again={0: 9}) == 11
    assert most_held(steps, {0: 1}, again={0: 9}) == 11, "the half for the inputs computes it again"
