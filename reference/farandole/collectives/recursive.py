"""Reduce-scatter by recursive halving and all-gather by recursive doubling, for any number of ranks.

They are the two halves of `halving_doubling`, in lgP rounds where the ring takes P − 1. There a rank that has no place
in the power of two P' gets the whole sum back. Here every rank must get one chunk: the odd rank of a folded pair works
for two chunks, and at the end sends its partner one of them; the all-gather does this in reverse.

    3 ranks, P' = 2     0→1 all, 1 and 2 swap halves: 1 has two chunks of the sum, 2 has one;  1→0 one chunk

Cost for n bytes where P is a power of two: lgP·α + (P−1)/P·nβ, and (P−1)/P·nγ for the reduce-scatter. Otherwise one
message of the whole vector and one of a chunk are added. Source: Thakur, Rabenseifner & Gropp, "Optimization of
collective communication operations in MPICH", 2005, sections 4.1 and 4.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from farandole.collectives import halving_doubling
from farandole.collectives.folding import place_of, power_of_two, rank_at
from farandole.collectives.steps import Exchange, Schedule, Step, Together


def owned(rank: int, size: int) -> int:
    """Return the chunk that a rank has after the reduce-scatter, and before the all-gather."""
    core = power_of_two(size)
    extra = size - core
    first = _bounds(core, extra)[_reversed_bits(place_of(rank, extra), core)]
    return first + (1 if rank < 2 * extra and rank % 2 == 0 else 0)


def reduce_scatter(rank: int, size: int) -> Iterator[Step]:
    """Afterwards rank r holds the sum of chunk `owned(r)`."""
    core = power_of_two(size)
    extra = size - core
    if rank < 2 * extra and rank % 2 == 0:
        yield Exchange(send=0, to=rank + 1, count=size)
        yield Exchange(recv=owned(rank, size), source=rank + 1)
        return
    if rank < 2 * extra:
        yield Exchange(recv=0, source=rank - 1, reduce=True, count=size)
    for step in halving_doubling.reduce_scatter(place_of(rank, extra), core):
        yield _widened(step, core, extra)
    if rank < 2 * extra:
        yield Exchange(send=owned(rank - 1, size), to=rank - 1)


def all_gather(rank: int, size: int) -> Iterator[Step]:
    """Rank r begins with chunk `owned(r)`, and every rank ends with every chunk."""
    core = power_of_two(size)
    extra = size - core
    if rank < 2 * extra and rank % 2 == 0:
        yield Exchange(send=owned(rank, size), to=rank + 1)
        yield Exchange(recv=0, source=rank + 1, count=size)
        return
    if rank < 2 * extra:
        yield Exchange(recv=owned(rank - 1, size), source=rank - 1)
    for step in halving_doubling.all_gather(place_of(rank, extra), core):
        yield _widened(step, core, extra)
    if rank < 2 * extra:
        yield Exchange(send=0, to=rank - 1, count=size)


def _widened(step: Exchange, core: int, extra: int) -> Step:
    """Return a step of the power of two between real ranks, where the chunk of a folded pair is two chunks."""
    assert step.to is not None
    assert step.source is not None
    bounds = _bounds(core, extra)
    send, recv = (range(bounds[each[0]], bounds[each[-1] + 1]) for each in (step.sent, step.received))
    to, source = rank_at(step.to, extra), rank_at(step.source, extra)
    if len(send) == len(recv):
        return Exchange(send[0], to, recv[0], source, step.reduce, len(send))
    sending = Exchange(send=send[0], to=to, count=len(send))
    return Together((sending, Exchange(recv=recv[0], source=source, reduce=step.reduce, count=len(recv))))


def _bounds(core: int, extra: int) -> Sequence[int]:
    """Return where each of the power of two's chunks begins, and the end of the last."""
    bounds = [0]
    for chunk in range(core):
        bounds.append(bounds[-1] + (2 if _reversed_bits(chunk, core) < extra else 1))
    return bounds


def _reversed_bits(number: int, core: int) -> int:
    """Return the chunk of a place, and the place of a chunk, in `halving_doubling`."""
    bits = core.bit_length() - 1
    return int(f"{number:0{bits}b}"[::-1], 2) if bits else 0


def _critical(size: int) -> int:
    """The odd rank of the first pair has its partner's messages beside the algorithm's."""
    return min(1, size - 1)


HALVING_REDUCE_SCATTER = Schedule("recursive halving", reduce_scatter, lambda size: size, _critical, "reduce-scatter")
DOUBLING_ALL_GATHER = Schedule("recursive doubling all-gather", all_gather, lambda size: size, _critical, "all-gather")
