"""Rabenseifner's halving-doubling: the bytes of the ring, in the rounds of recursive doubling.

Reduce-scatter by recursive halving: partners swap halves of what each is still responsible for, so that afterwards
each has one half, summed over both. The next partner is twice as far away, and the half is halved again.
All-gather by recursive doubling: the same partners in reverse order, each time giving each other all that is
finished.

    rank 0 of 4   swaps half with 1, a quarter with 2, the finished quarter with 2, the finished half with 1

Cost: 2lgP·α + 2(P−1)/P·nβ + (P−1)/P·nγ for n bytes: never worse than the ring, as long as no link between far
ranks is slow. Where P is no power of two, `folded` adds two messages of the whole vector, and the ring has
fewer bytes. Source: Rabenseifner, "Optimization of collective reduction operations", 2004.
"""

from __future__ import annotations

from collections.abc import Iterator

from farandole.collectives.folding import folded
from farandole.collectives.steps import Exchange, Schedule


def reduce_scatter(rank: int, size: int) -> Iterator[Exchange]:
    """Afterwards rank r, of a power of two, holds the sum of one chunk, whose number is r's with its bits reversed."""
    first, count = 0, size
    for distance in _distances(size):
        count //= 2
        partner = rank ^ distance
        given, kept = (first, first + count) if rank & distance else (first + count, first)
        yield Exchange(send=given, to=partner, recv=kept, source=partner, reduce=True, count=count)
        first = kept


def all_gather(rank: int, size: int) -> Iterator[Exchange]:
    """All-gather the finished chunks, by recursive doubling."""
    first = sum(size // (2 * distance) for distance in _distances(size) if rank & distance)
    count = 1
    for distance in reversed(_distances(size)):
        partner = rank ^ distance
        others = first ^ count
        yield Exchange(send=first, to=partner, recv=others, source=partner, count=count)
        first, count = min(first, others), 2 * count


def all_reduce(rank: int, size: int) -> Iterator[Exchange]:
    yield from reduce_scatter(rank, size)
    yield from all_gather(rank, size)


def _distances(size: int) -> list[int]:
    """1, 2, 4, …, half of the ranks."""
    return [1 << bit for bit in range(size.bit_length() - 1)]


HALVING_DOUBLING = folded(Schedule("halving-doubling", all_reduce, chunks=lambda size: size, operation="all-reduce"))
