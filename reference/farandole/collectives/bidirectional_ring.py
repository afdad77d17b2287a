"""Bidirectional ring all-reduce: one half of the vector goes round to the right, the other half to the left.

A plain ring uses each link in one direction only. Here the vector is cut into 2P chunks; the first P of them are
all-reduced by a ring, and at the same time the other P by a ring whose ranks are numbered the other way round. Each
step sends n/2P bytes to both neighbours and receives as much from both.

    one port a rank         2(P−1)α + 2(P−1)/P·nβ + (P−1)/P·nγ    as the ring: both messages share the rank's link
    a link per neighbour    2(P−1)α + (P−1)/P·nβ + (P−1)/P·nγ     half of the ring's bytes on each link

So it pays on a torus or over direct links between accelerators, and gains nothing behind one network card. The bytes
that leave each rank are those of the ring, 2(P−1)/P·n, in twice as many messages.

Source: Jain & Sabharwal, "Optimal bucket algorithms for large MPI collectives on torus interconnects", 2010, where
the rings of all dimensions and directions share the vector.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from farandole.collectives import ring
from farandole.collectives.steps import Exchange, Schedule, Together


def all_reduce(rank: int, size: int) -> Iterator[Together]:
    """The ring's step to the right on chunks 0 to P − 1, with the mirrored one to the left on chunks P to 2P − 1."""
    for right, left in zip(ring.all_reduce(rank, size), ring.all_reduce(size - 1 - rank, size), strict=True):
        yield Together((right, _mirrored(left, size)))


def _mirrored(step: Exchange, size: int) -> Exchange:
    """A step of the ring in which rank r plays rank P − 1 − r, so that its right neighbour is our left one."""
    assert step.send is not None
    assert step.to is not None
    assert step.recv is not None
    assert step.source is not None
    return replace(step, send=size + step.send, to=size - 1 - step.to,
                   recv=size + step.recv, source=size - 1 - step.source)  # fmt: skip


BIDIRECTIONAL_RING = Schedule("bidirectional ring", all_reduce, chunks=lambda size: 2 * size)
