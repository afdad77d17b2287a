"""Bidirectional ring all-reduce: one half of the vector travels to the right, the other half to the left.

A plain ring uses each link in one direction only. Here the vector is cut into 2P chunks. A ring all-reduces the first P
of them; at the same time a ring with the ranks in reverse order all-reduces the other P. Each step sends n/2P bytes to
each neighbour and receives as many from each.

    one port per rank       2(P−1)α + 2(P−1)/P·nβ + (P−1)/P·nγ    as the ring: both messages share the rank's link
    one link per neighbour  2(P−1)α + (P−1)/P·nβ + (P−1)/P·nγ     half of the ring's bytes on each link

It pays on a torus or over direct links between accelerators; behind one network card it gains nothing. Each rank sends
as many bytes as in the ring, 2(P−1)/P·n, in twice as many messages.

Source: Jain & Sabharwal, "Optimal bucket algorithms for large MPI collectives on torus interconnects", 2010, where
the rings of all dimensions and directions share the vector.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from farandole.collectives import ring
from farandole.collectives.steps import Exchange, Schedule, Together


def all_reduce(rank: int, size: int) -> Iterator[Together]:
    """Yield the ring's steps to the right on chunks 0 to P − 1, each with its mirror image on chunks P to 2P − 1."""
    for right, left in zip(ring.all_reduce(rank, size), ring.all_reduce(size - 1 - rank, size), strict=True):
        yield Together((right, _mirrored(left, size)))


def _mirrored(step: Exchange, size: int) -> Exchange:
    """Return a step of rank P − 1 − r as a step of rank r, so that it goes to the left, with the other P chunks."""
    assert step.send is not None
    assert step.to is not None
    assert step.recv is not None
    assert step.source is not None
    return replace(step, send=size + step.send, to=size - 1 - step.to,
                   recv=size + step.recv, source=size - 1 - step.source)  # fmt: skip


BIDIRECTIONAL_RING = Schedule(
    "bidirectional ring", all_reduce, lambda size: 2 * size, critical=lambda size: 0, operation="all-reduce"
)
