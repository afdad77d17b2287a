"""A schedule's messages, stage by stage: which rank sends how much to which at the same time.

A stage is what `checker.rounds` runs at the same time. Stages with the same messages occur once, with their number: a
ring of P ranks has 2(P − 1) of them, all alike. Of a uniform schedule only the first step of each run of equal ones is
looked at, so a ring of 10,000 ranks, which has 200 million messages, takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice

from farandole.collectives.checker import rounds
from farandole.collectives.steps import Schedule, Step
from farandole.errors import UsageError

MOST_STEPS = 10_000_000  # of all ranks, that would have to be listed

Message = tuple[int, int, float]  # sender, receiver, and its part of the vector


@dataclass(frozen=True)
class Stage:
    """Messages that are sent at the same time, and how often the schedule has just these."""

    messages: tuple[Message, ...]
    times: int


def stages(schedule: Schedule, ranks: int) -> list[Stage]:
    """Return the stages of a schedule, in the order in which they first occur.

    Raises:
        UsageError: there are more steps than one would wait for.
    """
    counted: dict[tuple[Message, ...], int] = {}
    for messages, times in _runs(schedule, ranks) if schedule.uniform else _rounds(schedule, ranks):
        if messages:
            counted[messages] = counted.get(messages, 0) + times
    return [Stage(messages, times) for messages, times in counted.items()]


def _rounds(schedule: Schedule, ranks: int) -> Iterator[tuple[tuple[Message, ...], int]]:
    chunks = schedule.chunks(ranks)
    for steps in rounds(schedule, ranks):
        yield _messages(steps, chunks), 1


def _runs(schedule: Schedule, ranks: int) -> Iterator[tuple[tuple[Message, ...], int]]:
    """Yield the messages of a uniform schedule's runs of equal steps, each with the run's length."""
    assert schedule.critical, f"{schedule.name} is uniform, but has no critical rank"
    chunks, own = schedule.chunks(ranks), schedule.steps(schedule.critical(ranks), ranks)
    lengths = [len(list(run)) for _, run in groupby(own, key=_partners)]
    if sum(lengths[:-1]) * ranks > MOST_STEPS:
        raise UsageError(
            f"--network: {schedule.name} with {ranks} workers has more than {MOST_STEPS:,} steps to list, which takes "
            "too long: give fewer workers"
        )
    everyone = [schedule.steps(rank, ranks) for rank in range(ranks)]
    passed = 0  # steps of each rank that are still to be left out
    for length in lengths:
        current = [(rank, next(islice(steps, passed, None))) for rank, steps in enumerate(everyone)]
        yield _messages(current, chunks), length
        passed = length - 1


def _partners(step: Step) -> tuple[tuple[int | None, int | None, int, int], ...]:
    """Return what a run's steps have in common: the partners and the numbers of chunks."""
    return tuple((each.to, each.source, len(each.sent), len(each.received)) for each in step.exchanges)


def _messages(steps: Sequence[tuple[int, Step]], chunks: int) -> tuple[Message, ...]:
    return tuple(
        (rank, each.to, len(each.sent) / chunks)
        for rank, step in steps
        for each in step.exchanges
        if each.to is not None
    )
