"""Binomial trees: what one rank has for all, or gets from all, in lgP rounds.

In a tree with root 0 each rank's parent is its number without the lowest bit that is set; below rank r with lowest
bit b are the ranks r to r + b − 1, which follow each other.

    0 ─┬─ 4 ─┬─ 6 ─── 7
       │     └─ 5
       ├─ 2 ─── 3        a broadcast goes down, to the largest subtree first; a reduction comes up
       └─ 1

    broadcast   the whole vector, down            reduce   the whole vector, up, added on the way
    scatter     to each subtree its chunks        gather   the reverse, up

All-reduce: reduce, then broadcast. Better than the central aggregator, since no rank has more than lgP partners; but
in every round only some of the ranks do anything.

Cost: broadcast lgP(α + nβ) for n bytes; reduce lgP·nγ more; scatter and gather lgP·α + (P−1)/P·nβ; all-reduce
2lgP(α + nβ) + lgP·nγ. Source: Thakur, Rabenseifner & Gropp, "Optimization of collective communication operations in
MPICH", 2005.
"""

from __future__ import annotations

from collections.abc import Iterator

from farandole.collectives.steps import Exchange, Schedule

ROOT = 0


def broadcast(rank: int, size: int) -> Iterator[Exchange]:
    """Broadcast the root's chunks to all ranks."""
    if rank != ROOT:
        yield Exchange(recv=0, source=_parent(rank))
    for child in reversed(_children(rank, size)):
        yield Exchange(send=0, to=child)


def reduce(rank: int, size: int) -> Iterator[Exchange]:
    """The root gets the sum of all; the others are left with sums of some."""
    for child in _children(rank, size):
        yield Exchange(recv=0, source=child, reduce=True)
    if rank != ROOT:
        yield Exchange(send=0, to=_parent(rank))


def scatter(rank: int, size: int) -> Iterator[Exchange]:
    """Rank r gets the root's chunk r, and those of the ranks below it to pass on."""
    if rank != ROOT:
        yield Exchange(recv=rank, source=_parent(rank), count=_below(rank, size))
    for child in reversed(_children(rank, size)):
        yield Exchange(send=child, to=child, count=_below(child, size))


def gather(rank: int, size: int) -> Iterator[Exchange]:
    """The root gets chunk r of rank r."""
    for child in _children(rank, size):
        yield Exchange(recv=child, source=child, count=_below(child, size))
    if rank != ROOT:
        yield Exchange(send=rank, to=_parent(rank), count=_below(rank, size))


def all_reduce(rank: int, size: int) -> Iterator[Exchange]:
    yield from reduce(rank, size)
    yield from broadcast(rank, size)


def _lowest_bit(rank: int, size: int) -> int:
    """Of the root, whose number has none: the first power of two that no rank has."""
    return rank & -rank if rank else 1 << (size - 1).bit_length()


def _parent(rank: int) -> int:
    return rank & (rank - 1)


def _children(rank: int, size: int) -> list[int]:
    """Return the children, the nearest first, which has none itself."""
    offsets = (1 << bit for bit in range(_lowest_bit(rank, size).bit_length() - 1))
    return [rank + offset for offset in offsets if rank + offset < size]


def _below(rank: int, size: int) -> int:
    """Return the number of ranks in the subtree of `rank`, itself among them."""
    return min(_lowest_bit(rank, size), size - rank)


BROADCAST = Schedule("tree broadcast", broadcast, chunks=lambda size: 1, critical=lambda size: ROOT)
REDUCE = Schedule("tree reduce", reduce, chunks=lambda size: 1, critical=lambda size: ROOT)
SCATTER = Schedule("tree scatter", scatter, chunks=lambda size: size, critical=lambda size: ROOT)
GATHER = Schedule("tree gather", gather, chunks=lambda size: size, critical=lambda size: ROOT)
TREE = Schedule("tree", all_reduce, chunks=lambda size: 1, critical=lambda size: ROOT, operation="all-reduce")
