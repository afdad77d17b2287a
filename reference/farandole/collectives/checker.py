"""Is a schedule right? Run all its ranks in one process, on symbols instead of numbers.

Each chunk on each rank is a multiset: how often every rank's contribution is in it. After an
all-reduce every chunk on every rank must hold every contribution exactly once; after an all-to-all
the block for rank s must be on rank s. Messages are
rendezvous: a send completes only when the partner receives, so a schedule that merely relies on
MPI buffering small messages is found to deadlock here, whatever the message size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from farandole.collectives.steps import Exchange, Schedule, Step, named

Contributions = Counter[int]  # rank → how often its contribution is in the sum
Round = list[tuple[int, Step]]  # (rank, its step)
Messages = list[tuple[int, Exchange]]  # (rank, one of the exchanges of its step)


class ScheduleError(AssertionError):
    """The schedule deadlocks, pairs wrong chunks, or ends with wrong sums; the message says where."""


@dataclass
class Execution:
    """The result of a schedule's symbolic run.

    Attributes:
        held: held[rank][chunk], the contributions in it at the end.
        steps: number of steps of each rank.
        chunks_sent: number of chunks each rank has sent.
        rounds: per round, the exchanges (rank, Exchange) that ran at the same time; for drawing. A rank whose step is
            `Together` has several.
    """

    held: list[list[Contributions]]
    steps: list[int]
    chunks_sent: list[int]
    rounds: list[Messages] = field(default_factory=list)


def execute(schedule: Schedule, size: int, start: list[list[Contributions]] | None = None) -> Execution:
    """Run `schedule` on `size` ranks, in rounds of everything that can complete.

    Args:
        start: what each chunk of each rank holds at first; by default the rank's own contribution.

    Raises:
        ScheduleError: as `rounds`; or a rank is sent other chunks than it expects; or a step replaces a chunk that
            another of its messages contains, so that the result depends on which message is first.
    """
    chunks = schedule.chunks(size)
    held = start or [[Counter({rank: 1}) for _ in range(chunks)] for rank in range(size)]
    execution = Execution(held, [0] * size, [0] * size)
    for steps in rounds(schedule, size):
        _apply(dict(steps), held)
        messages = [(rank, each) for rank, step in steps for each in step.exchanges]
        for rank, _ in steps:
            execution.steps[rank] += 1
        for rank, each in messages:
            execution.chunks_sent[rank] += len(each.sent)
        execution.rounds.append(messages)
    return execution


def rounds(schedule: Schedule, size: int) -> Iterator[Round]:
    """Yield the steps that run at the same time, round after round.

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


def check_all_to_all(schedule: Schedule, size: int) -> Execution:
    """Assert that every block ends where it belongs: chunk i of rank r, which is for rank r + i, as chunk i of r + i.

    Raises:
        ScheduleError: naming the first chunk that does not.
    """
    start = [[Counter({_block(rank, rank + chunk, size): 1}) for chunk in range(size)] for rank in range(size)]
    execution = execute(schedule, size, start)
    for rank, chunks in enumerate(execution.held):
        for chunk, contents in enumerate(chunks):
            if contents != Counter({_block(rank - chunk, rank, size): 1}):
                where = f"{schedule.name} on {size} ranks: chunk {chunk} on rank {rank}"
                blocks = " and ".join(f"the block of {each // size} for {each % size}" for each in contents.elements())
                raise ScheduleError(f"{where} is {blocks}, not the block of {(rank - chunk) % size} for {rank}")
    return execution


def _block(source: int, to: int, size: int) -> int:
    """Return a number for the block that `source` has for `to`."""
    return source % size * size + to % size


def _completable(current: dict[int, Step]) -> set[int]:
    """Return the largest set of ranks whose steps all find their partners within the set."""
    ready = set(current)
    sends = {rank: Counter(each.to for each in step.exchanges) for rank, step in current.items()}
    receives = {rank: Counter(each.source for each in step.exchanges) for rank, step in current.items()}

    def matched(rank: int) -> bool:
        """Return whether this rank and each of its partners agree on the number of messages, both ways."""
        partners = (sends[rank].keys() | receives[rank].keys()) - {None}
        return all(
            partner in ready
            and sends[rank][partner] == receives[partner][rank]
            and receives[rank][partner] == sends[partner][rank]
            for partner in partners
        )

    while unmatched := {rank for rank in ready if not matched(rank)}:
        ready -= unmatched
    return ready


def _apply(steps: dict[int, Step], held: list[list[Contributions]]) -> None:
    """Complete the steps at once: every message has the value from before them."""
    arriving: list[tuple[int, Exchange, list[Contributions]]] = []
    for rank, step in steps.items():
        _check_order_is_no_matter(rank, step)
        taken: Counter[int] = Counter()  # per partner: messages between the same two ranks pair up in order
        for each in step.exchanges:
            if each.source is not None:
                leaving = [other.sent for other in steps[each.source].exchanges if other.to == rank]
                sent = leaving[taken[each.source]]
                taken[each.source] += 1
                if sent != each.received:
                    wants = f"rank {rank} wants {named(each.received)} of {each.source}"
                    raise ScheduleError(f"{wants}, which sends {named(sent)}")
                arriving.append((rank, each, [held[each.source][chunk].copy() for chunk in sent]))
    for rank, each, chunks in arriving:
        for chunk, contributions in zip(each.received, chunks, strict=True):
            held[rank][chunk] = held[rank][chunk] + contributions if each.reduce else contributions


def _check_order_is_no_matter(rank: int, step: Step) -> None:
    """Refuse a step that replaces a chunk of another of its messages; a chunk that is added to may be in several."""
    uses: Counter[int] = Counter()
    for each in step.exchanges:
        uses.update(each.received)
        if not each.swaps:  # the executor sends a copy of what it replaces
            uses.update(each.sent)
    for each in step.exchanges:
        for chunk in each.received:
            if not each.reduce and uses[chunk] > 1:
                raise ScheduleError(f"rank {rank} replaces chunk {chunk} and uses it twice in one step: {step}")
