"""Recursive doubling: in every round each rank exchanges its partial sum with a partner twice as far away.

    round 0   0─1   2─3   4─5   6─7     partner = rank XOR 1: afterwards sums of two
    round 1   0─2   1─3   4─6   5─7     rank XOR 2: of four
    round 2   0─4   1─5   2─6   3─7     rank XOR 4: of all

After lgP rounds, the minimum, every rank has the whole sum. The method suits short vectors; for long ones, sending the
whole vector in every round costs too much.

Cost: lgP(α + nβ + nγ) for n bytes; where P is no power of two, `folded` adds two rounds. Source: Thakur,
Rabenseifner & Gropp, "Optimization of collective communication operations in MPICH", 2005.
"""

from __future__ import annotations

from collections.abc import Iterator

from farandole.collectives.folding import folded
from farandole.collectives.steps import Exchange, Schedule


def all_reduce(rank: int, size: int) -> Iterator[Exchange]:
    """The whole vector is one chunk, number 0; `size` is a power of two."""
    distance = 1
    while distance < size:
        partner = rank ^ distance
        yield Exchange(send=0, to=partner, recv=0, source=partner, reduce=True)
        distance *= 2


DOUBLING = folded(Schedule("recursive doubling", all_reduce, chunks=lambda size: 1, operation="all-reduce"))
