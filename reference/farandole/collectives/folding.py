"""How an algorithm for a power of two is used by any number of ranks: the extra ones are folded in.

With e ranks more than the power of two P', the first 2e pair up. Of each pair the even one hands its vector to
the odd one and waits; the odd ones and all that follow are P' ranks, and do the algorithm's work; in the end each
odd one sends its partner the result.

    7 ranks, P' = 4, e = 3     0→1   2→3   4→5   6       1, 3, 5, 6 do it as 0, 1, 2, 3     0←1   2←3   4←5

Cost: two messages of the whole vector and one addition, before and after the rest.
Source: Thakur, Rabenseifner & Gropp, "Optimization of collective communication operations in MPICH", 2005.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from farandole.collectives.steps import Exchange, Schedule, Step, Together


def folded(schedule: Schedule) -> Schedule:
    """An all-reduce for powers of two, for all numbers of ranks."""

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
        for step in schedule.steps(_place(rank, extra), core):
            yield _between_ranks(step, extra)
        if rank < 2 * extra:
            yield Exchange(send=0, to=rank - 1, count=whole)

    def critical(size: int) -> int:
        """The odd rank of the first pair has its partner's messages beside the algorithm's."""
        return min(1, size - 1)

    return Schedule(schedule.name, steps, lambda size: schedule.chunks(power_of_two(size)), critical)


def power_of_two(size: int) -> int:
    """The largest one that is not more than `size`."""
    return 1 << (size.bit_length() - 1)


def _between_ranks(step: Step, extra: int) -> Step:
    """Return a step for a power of two with each place replaced by the rank that plays it."""
    if isinstance(step, Together):
        places = [replace(each, to=_rank(each.to, extra), source=_rank(each.source, extra)) for each in step.exchanges]
        return Together(tuple(places))
    return replace(step, to=_rank(step.to, extra), source=_rank(step.source, extra))


def _place(rank: int, extra: int) -> int:
    """Which rank of the power of two a rank plays."""
    return rank // 2 if rank < 2 * extra else rank - extra


def _rank(place: int | None, extra: int) -> int | None:
    """Who plays it."""
    if place is None:
        return None
    return 2 * place + 1 if place < extra else place + extra
