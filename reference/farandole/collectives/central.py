"""The central aggregator: one rank receives all vectors, adds them up and sends the sum back.

The aggregator of document 003, and the simplest all-reduce. Rank 0 sends and receives P − 1 times the vector, with one
partner after the other, while all other ranks wait.

Cost at the root: 2(P−1)(α + nβ) + (P−1)nγ for P ranks and n bytes; every other rank sends n bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

from farandole.collectives.steps import Exchange, Schedule

ROOT = 0


def all_reduce(rank: int, size: int) -> Iterator[Exchange]:
    """The whole vector is one chunk, number 0."""
    others = [other for other in range(size) if other != ROOT]
    if rank != ROOT:
        yield Exchange(send=0, to=ROOT)
        yield Exchange(recv=0, source=ROOT)
        return
    for other in others:
        yield Exchange(recv=0, source=other, reduce=True)
    for other in others:
        yield Exchange(send=0, to=other)


CENTRAL = Schedule("central", all_reduce, chunks=lambda size: 1, critical=lambda size: ROOT, operation="all-reduce")
