"""All-to-all: every rank has a block for every other, and each block goes to the rank that it is for.

On rank r, chunk i is at first the block for rank r + i, and at the end the block from rank r − i (mod P). With these
numbers a block arrives in the place of the one that left. `executor.run_all_to_all` orders blocks by rank before and
after.

    pairwise    step k: send chunk k to rank r + k           P − 1 steps, every block once
    Bruck       round k: send all chunks i with bit k of i   ⌈lgP⌉ rounds, a block in as many as i has bits set
                set, in one message, to rank r + 2ᵏ

In Bruck's algorithm a block travels its distance i in hops of 1, 2, 4, …, and other ranks forward it. It suits short
blocks, for which the number of messages counts more than the bytes.

Cost for n bytes per rank, all blocks together: pairwise (P−1)α + (P−1)/P·nβ, the fewest bytes possible; Bruck
⌈lgP⌉α + (lgP)/2·nβ where P is a power of two. Source: Bruck, Ho, Kipnis, Upfal & Weathersby, "Efficient algorithms for
all-to-all communications in multiport message-passing systems", 1997; Thakur, Rabenseifner & Gropp, "Optimization of
collective communication operations in MPICH", 2005.
"""

from __future__ import annotations

from collections.abc import Iterator

from farandole.collectives.steps import Exchange, Schedule


def pairwise(rank: int, size: int) -> Iterator[Exchange]:
    for distance in range(1, size):
        yield Exchange(
            send=distance, to=(rank + distance) % size,
            recv=distance, source=(rank - distance) % size,
        )  # fmt: skip


def bruck(rank: int, size: int) -> Iterator[Exchange]:
    hop = 1
    while hop < size:
        moving = [distance for distance in range(size) if distance & hop]
        yield Exchange(
            send=moving[0], to=(rank + hop) % size,
            recv=moving[0], source=(rank - hop) % size,
            offsets=tuple(distance - moving[0] for distance in moving),
        )  # fmt: skip
        hop *= 2


PAIRWISE = Schedule("pairwise all-to-all", pairwise, chunks=lambda size: size, critical=lambda size: 0)
BRUCK = Schedule("Bruck's all-to-all", bruck, chunks=lambda size: size, critical=lambda size: 0)
