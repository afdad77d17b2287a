"""Is a schedule right? Run all its ranks in one process, on symbols instead of numbers.

Each chunk on each rank is a multiset: how often every rank's contribution is in it. After an
all-reduce every chunk on every rank must hold every contribution exactly once. Messages are
rendezvous: a send completes only when the partner receives, so a schedule that merely relies on
MPI buffering small messages is found to deadlock here, whatever the message size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from farandole.collectives.steps import Exchange, Schedule, named

Contributions = Counter[int]  # rank → how often its contribution is in the sum
Round = list[tuple[int, Exchange]]  # (rank, its step)


class ScheduleError(AssertionError):
    """The schedule deadlocks, pairs wrong chunks, or ends with wrong sums; the message says where."""


@dataclass
class Execution:
    """What came of a schedule, run symbolically.

    Attributes:
        held: held[rank][chunk], the contributions in it at the end.
        steps: number of steps of each rank.
        chunks_sent: number of chunks each rank has sent.
        rounds: per round, the steps (rank, Exchange) that ran at the same time; for drawing.
    """

    held: list[list[Contributions]]
    steps: list[int]
    chunks_sent: list[int]
    rounds: list[Round] = field(default_factory=list)


def execute(schedule: Schedule, size: int, start: list[list[Contributions]] | None = None) -> Execution:
    """Run `schedule` on `size` ranks, in rounds of everything that can complete.

    Args:
        start: what each chunk of each rank holds at first; by default the rank's own contribution.

    Raises:
        ScheduleError: as `rounds`, or a rank is sent other chunks than it wants.
    """
    chunks = schedule.chunks(size)
    held = start or [[Counter({rank: 1}) for _ in range(chunks)] for rank in range(size)]
    execution = Execution(held, [0] * size, [0] * size)
    for steps in rounds(schedule, size):
        _apply(dict(steps), held)
        for rank, step in steps:
            execution.steps[rank] += 1
            execution.chunks_sent[rank] += len(step.sent)
        execution.rounds.append(steps)
    return execution


def rounds(schedule: Schedule, size: int) -> Iterator[Round]:
    """What runs at the same time, round after round.

    Raises:
        ScheduleError: the ranks wait for each other in a circle, or one for a message never sent.
    """
    plans = [list(schedule.steps(rank, size)) for rank in range(size)]
    at = [0] * size
    while any(at[rank] < len(plans[rank]) for rank in range(size)):
        current = {rank: plans[rank][at[rank]] for rank in range(size) if at[rank] < len(plans[rank])}
        ready = _completable(current)
        if not ready:
            stuck = "; ".join(f"rank {rank}: {step}" for rank, step in sorted(current.items()))
            raise ScheduleError(f"{schedule.name} on {size} ranks deadlocks: {stuck}")
        for rank in ready:
            at[rank] += 1
        yield [(rank, current[rank]) for rank in sorted(ready)]


def check_all_reduce(schedule: Schedule, size: int) -> Execution:
    """Assert that every chunk ends on every rank with every contribution exactly once.

    Raises:
        ScheduleError: naming the first chunk that does not.
    """
    execution = execute(schedule, size)
    complete = Counter(range(size))
    for rank, chunks in enumerate(execution.held):
        for chunk, contributions in enumerate(chunks):
            if contributions != complete:
                missing = sorted((complete - contributions).elements())
                extra = sorted((contributions - complete).elements())
                faults = [f"lacks the contributions of ranks {missing}"] * bool(missing)
                faults += [f"counts those of ranks {extra} too often"] * bool(extra)
                where = f"{schedule.name} on {size} ranks: chunk {chunk} on rank {rank}"
                raise ScheduleError(f"{where} {' and '.join(faults)}")
    return execution


def _completable(current: dict[int, Exchange]) -> set[int]:
    """The largest set of ranks whose steps all find their partners within the set."""
    ready = set(current)

    def matched(rank: int) -> bool:
        step = current[rank]
        sends = step.to is None or (step.to in ready and current[step.to].source == rank)
        receives = step.source is None or (step.source in ready and current[step.source].to == rank)
        return sends and receives

    while unmatched := {rank for rank in ready if not matched(rank)}:
        ready -= unmatched
    return ready


def _apply(steps: dict[int, Exchange], held: list[list[Contributions]]) -> None:
    """Complete the steps at once: what is sent is what was held before."""
    arriving = {}
    for rank, step in steps.items():
        if step.source is not None:
            sent = steps[step.source].sent
            if sent != step.received:
                wants = f"rank {rank} wants {named(step.received)} of {step.source}"
                raise ScheduleError(f"{wants}, which sends {named(sent)}")
            arriving[rank] = [held[step.source][chunk].copy() for chunk in sent]
    for rank, chunks in arriving.items():
        step = steps[rank]
        for chunk, contributions in zip(step.received, chunks, strict=True):
            held[rank][chunk] = held[rank][chunk] + contributions if step.reduce else contributions
