"""Folding: an algorithm for a power of two, run by any number of ranks.

With e ranks more than the power of two P', the first 2e form pairs. The even rank of each pair sends its vector to the
odd one and waits. The odd ones and all ranks after the pairs are P' ranks and run the algorithm. At the end each odd
rank sends its partner the result.

    7 ranks, P' = 4, e = 3     0→1   2→3   4→5   6       1, 3, 5, 6 run it as 0, 1, 2, 3       0←1   2←3   4←5

Cost: two messages of the whole vector and one addition, before and after the rest.
Source: Thakur, Rabenseifner & Gropp, "Optimization of collective communication operations in MPICH", 2005.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from farandole.collectives.steps import Exchange, Schedule, Step, Together


def folded(schedule: Schedule) -> Schedule:
    """Return an all-reduce for powers of two as one for all numbers of ranks."""

    def steps(rank: int, size: int) -> Iterator[Step]:
        core = power_of_two(size)
        extra = size - core
        whole = schedule.chunks(core)
        if rank < 2 * extra and rank % 2 == 0:
            yield Exchange(send=0, to=rank + 1, count=whole)
            yield Exchange(recv=0, source=rank + 1, count=whole)
            return
        if rank < 2 * extra:
            yield Exchange(recv=0, source=rank - 1, reduce=True, count=whole)
        for step in schedule.steps(place_of(rank, extra), core):
            yield _between_ranks(step, extra)
        if rank < 2 * extra:
            yield Exchange(send=0, to=rank - 1, count=whole)

    def critical(size: int) -> int:
        """The odd rank of the first pair has its partner's messages beside the algorithm's."""
        return min(1, size - 1)

    return replace(schedule, steps=steps, chunks=lambda size: schedule.chunks(power_of_two(size)), critical=critical)


def power_of_two(size: int) -> int:
    """Return the largest power of two that is not more than `size`."""
    return 1 << (size.bit_length() - 1)


def _between_ranks(step: Step, extra: int) -> Step:
    """Return a step for a power of two with each place replaced by the rank that plays it."""
    if isinstance(step, Together):
        places = [
            replace(each, to=rank_at(each.to, extra), source=rank_at(each.source, extra)) for each in step.exchanges
        ]
        return Together(tuple(places))
    return replace(step, to=rank_at(step.to, extra), source=rank_at(step.source, extra))


def place_of(rank: int, extra: int) -> int:
    """Return a rank's place in the power of two."""
    return rank // 2 if rank < 2 * extra else rank - extra


def rank_at(place: int | None, extra: int) -> int | None:
    """Return the rank at a place."""
    if place is None:
        return None
    return 2 * place + 1 if place < extra else place + extra
