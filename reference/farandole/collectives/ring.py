"""Ring all-reduce: every rank communicates with its neighbours only, and no rank is a bottleneck.

The vector is cut into P chunks. Reduce-scatter: in each of P − 1 steps every rank passes one
chunk to its right and adds the one that arrives from its left; a chunk travels once around, and
rank r ends up with the finished sum of chunk r + 1. All-gather: P − 1 more steps pass the
finished chunks around once more.

Cost: 2(P−1)α + 2(P−1)/P·nβ + (P−1)/P·nγ for n bytes; the bytes per rank, 2(P−1)/P·n, are the
least possible and hardly depend on P. Source: Patarasuk & Yuan, "Bandwidth optimal all-reduce
algorithms for clusters of workstations", 2009; brought to deep learning by Baidu in 2017
(documents 000, 001, 004).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from farandole.collectives.steps import Exchange, Schedule, Steps
from farandole.runtime.traffic import CollectiveKind


def reduce_scatter(rank: int, size: int) -> Iterator[Exchange]:
    """Afterwards rank r holds the sum of chunk r + 1 (mod P); its other chunks are partial sums."""
    right, left = (rank + 1) % size, (rank - 1) % size
    for step in range(size - 1):
        yield Exchange(
            send=(rank - step) % size, to=right,
            recv=(rank - step - 1) % size, source=left, reduce=True,
        )  # fmt: skip


def all_gather(rank: int, size: int) -> Iterator[Exchange]:
    """All-gather: rank r begins with chunk r + 1, and every rank ends with every chunk."""
    right, left = (rank + 1) % size, (rank - 1) % size
    for step in range(size - 1):
        yield Exchange(
            send=(rank + 1 - step) % size, to=right,
            recv=(rank - step) % size, source=left,
        )  # fmt: skip


def all_reduce(rank: int, size: int) -> Iterator[Exchange]:
    yield from reduce_scatter(rank, size)
    yield from all_gather(rank, size)


def _uniform(name: str, steps: Steps, operation: CollectiveKind) -> Schedule:
    """Return a schedule over the ring, in which every rank does the same as rank 0 at the same time."""
    return Schedule(name, steps, lambda size: size, critical=lambda size: 0, uniform=True, operation=operation)


RING = _uniform("ring", all_reduce, "all-reduce")
REDUCE_SCATTER = _uniform("ring reduce-scatter", reduce_scatter, "reduce-scatter")
ALL_GATHER = _uniform("ring all-gather", all_gather, "all-gather")


@lru_cache
def segmented(segments: int) -> Schedule:
    """Return the same ring, with every chunk in this number of messages.

    A received segment is still in the cache when it is added, and the wait for a slow neighbour is divided into shorter
    ones. The sums are bitwise the same. Cost: as the ring, with 2(P−1)·segments times α.
    """

    def steps(rank: int, size: int) -> Iterator[Exchange]:
        for step in all_reduce(rank, size):
            assert step.send is not None
            assert step.recv is not None
            for segment in range(segments):
                yield replace(step, send=step.send * segments + segment, recv=step.recv * segments + segment)

    name = f"ring in {segments} segments"
    return Schedule(name, steps, lambda size: size * segments, lambda size: 0, operation="all-reduce")
