"""Check a pipeline schedule and measure its memory and idle time, without MPI, in one process.

All stages advance as far as they can. A computation takes its time, a message arrives when it is sent, a send does not
wait, and a receive waits for its message. The result is a timeline, on which every rule is checked for every
micro-batch and every piece of the model.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property

from farandole.model_parallel.step_costs import duration, most_held
from farandole.model_parallel.step_order import RECEIPTS, SHIPMENTS, Sent, in_order
from farandole.model_parallel.step_order import ScheduleError as ScheduleError
from farandole.model_parallel.steps import (
    Backward,
    BackwardInput,
    BackwardWeight,
    Computation,
    Forward,
    Schedule,
    Times,
    Update,
)

UNIT = Times()


@dataclass(frozen=True, slots=True)
class Interval:
    """One computation of a stage, and its time."""

    stage: int
    step: Computation
    start: float
    end: float


@dataclass(frozen=True)
class Execution:
    """The result of a schedule's run.

    Attributes:
        intervals: every computation, in order of each stage.
        stash: for each stage the largest number of chunks' activations held at once.
        messages: how many each stage has sent to others.
        times: how long computations took.
    """

    stages: int
    intervals: list[Interval]
    stash: list[int]
    messages: list[int]
    times: Times

    @cached_property
    def by_stage(self) -> list[list[Interval]]:
        """Return the computations of each stage, in order."""
        rows: list[list[Interval]] = [[] for _ in range(self.stages)]
        for own in self.intervals:
            rows[own.stage].append(own)
        return rows

    @property
    def total(self) -> float:
        return max(interval.end for interval in self.intervals)

    def idle(self, stage: int) -> float:
        """Return the stage's idle time, until the last stage has finished."""
        return self.total - sum(own.end - own.start for own in self.by_stage[stage])

    @property
    def period(self) -> float:
        """Return the time per batch where batches follow each other: the longest from a stage's first step to its last.

        Nothing synchronises the stages at an update, so a stage that has updated begins the next batch at once.
        """
        return max((own[-1].end - own[0].start for own in self.by_stage if own), default=0.0)

    @property
    def overlaps(self) -> bool:
        """Whether the next batch begins on some stages before this one has ended on all: the period is shorter."""
        return self.period < self.total * (1 - 1e-9)

    @property
    def bubble_of_period(self) -> float:
        """Return the idle time of all stages over all their time where batches follow each other, 0 to 1."""
        work = sum(own.end - own.start for own in self.intervals)
        return 1 - work / (self.stages * self.period) if self.period else 0.0

    @property
    def bubble_of_total(self) -> float:
        """Idle time of all stages over all their time, for a single batch, 0 to 1."""
        return sum(map(self.idle, range(self.stages))) / (self.stages * self.total) if self.total else 0.0

    @property
    def bubble_of_ideal(self) -> float:
        """Idle time of all stages over the time that their computations take, 0 and more."""
        return self.bubble_of_total / (1 - self.bubble_of_total)


def execute(schedule: Schedule, stages: int, micro_batches: int, times: Times = UNIT) -> Execution:
    """Run all stages of `schedule` in simulated time.

    Raises:
        ScheduleError: some stages wait for messages that never come, or messages are never received.
    """
    passes = schedule.placement.passes
    clock = [0.0] * stages
    arrivals: dict[Sent | None, float] = {}  # message → when
    intervals: list[Interval] = []
    done: list[list[Computation]] = [[] for _ in range(stages)]
    messages = [0] * stages
    for stage, step, message in in_order(schedule, stages, micro_batches):
        if isinstance(step, RECEIPTS):
            clock[stage] = max(clock[stage], arrivals.pop(message))
        elif isinstance(step, SHIPMENTS):
            arrivals[message] = clock[stage]
            messages[stage] += step.peer != stage
        else:
            start, clock[stage] = clock[stage], clock[stage] + duration(step, times, passes)
            intervals.append(Interval(stage, step, start, clock[stage]))
            done[stage].append(step)
    one_each: dict[int, int] = defaultdict(lambda: 1)  # also for a chunk that does not exist, which `check` reports
    stash = [most_held(steps, one_each) for steps in done]
    return Execution(stages, intervals, stash, messages, times)


def check(schedule: Schedule, stages: int, micro_batches: int, times: Times = UNIT) -> Execution:
    """Run the schedule and hold it to every rule of a pipeline.

    Each piece of the model (of one of its copies) takes every micro-batch forward once, then backward once, whole or in
    two halves in order; the parameters move after all gradients of their batch. The messages ensure that a forward pass
    follows that of the piece before, and a backward pass that of the piece behind (`execute`).

    Raises:
        ScheduleError: naming the first rule that is broken, the stage and the micro-batch.
    """
    execution = execute(schedule, stages, micro_batches, times)
    for stage in range(stages):
        _check_stage(schedule, stage, micro_batches, [own.step for own in execution.by_stage[stage]])
    return execution


def _check_stage(schedule: Schedule, stage: int, micro_batches: int, steps: list[Computation]) -> None:
    where = f"{schedule.name}: stage {stage}"
    done = {step: place for place, step in enumerate(steps)}
    repeated = [step for step, times in Counter(steps).items() if times > 1]
    if repeated:
        raise ScheduleError(f"{where} does {repeated[0]} more than once")
    foreign = [
        step
        for step in steps
        if not isinstance(step, Update)
        and not (0 <= step.micro_batch < micro_batches and 0 <= step.chunk < schedule.chunks)
    ]
    if foreign:
        raise ScheduleError(f"{where} does {foreign[0]}, which does not exist")
    routes = _routes(schedule, where, steps)
    for micro_batch in range(micro_batches):
        for chunk in routes.get(micro_batch, schedule.placement.routes[0]):
            passes = {
                kind: done.get(kind(micro_batch, chunk)) for kind in (Forward, Backward, BackwardInput, BackwardWeight)
            }
            forward, whole, first, second = passes.values()
            if forward is None:
                raise ScheduleError(f"{where} never takes micro-batch {micro_batch} forward")
            if (whole is None) == (first is None) or (first is None) != (second is None):
                raise ScheduleError(
                    f"{where} must take micro-batch {micro_batch} backward once, whole or in two halves"
                )
            order = [place for place in (forward, whole, first, second) if place is not None]
            if order != sorted(order):
                raise ScheduleError(
                    f"{where} takes micro-batch {micro_batch} backward before forward, or its halves swapped"
                )
    _check_updates(schedule, where, micro_batches, steps)


def _routes(schedule: Schedule, where: str, steps: list[Computation]) -> dict[int, range]:
    """Return micro-batch → the chunks that it goes through, for those that occur."""
    chunks: dict[int, set[int]] = defaultdict(set)
    for step in steps:
        if not isinstance(step, Update):
            chunks[step.micro_batch].add(step.chunk)
    found = {}
    for micro_batch, own in chunks.items():
        routes = [route for route in schedule.placement.routes if own & {*route}]
        if len(routes) > 1:
            raise ScheduleError(f"{where} takes micro-batch {micro_batch} through the model in both directions")
        found[micro_batch] = routes[0]
    return found


def _check_updates(schedule: Schedule, where: str, micro_batches: int, steps: list[Computation]) -> None:
    if schedule.flushes:
        if steps[-1:] != [Update()] or sum(isinstance(step, Update) for step in steps) != 1:
            raise ScheduleError(f"{where} must update once, after its last gradient")
        return
    after = [step for step in steps if isinstance(step, Update | Backward | BackwardWeight)]
    for gradient, update in zip(after[::2], after[1::2], strict=False):
        if isinstance(gradient, Update) or update != Update(gradient.micro_batch):
            raise ScheduleError(f"{where} must update right after each gradient: {gradient} is followed by {update}")
    if len(after) != 2 * micro_batches:
        raise ScheduleError(f"{where} must update once after each of {micro_batches} gradients")
