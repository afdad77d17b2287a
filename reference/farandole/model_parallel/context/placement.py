"""Which positions of a sequence each rank has, and how much attention they make.

    contiguous   rank r has the r-th of P parts
    zig-zag      the sequence is cut into 2P parts, and rank r has the parts r and 2P − 1 − r

A position looks back at all positions before it, so the last ones have the most work. With contiguous parts the last
rank has almost twice the mean, and all others wait for it. A zig-zag pairs an early part with a late one: where 2P
divides T, every rank has equal work in every step of the ring.

    P = 4, zig-zag     part 0 1 2 3 4 5 6 7
                       rank 0 1 2 3 3 2 1 0

Source: Brandon et al., "Striped attention", 2023, for the imbalance and another remedy. The zig-zag is that of Llama
3's context parallelism: Grattafiori et al., "The Llama 3 herd of models", 2024, section 3.3.2.
"""

from __future__ import annotations

from collections.abc import Sequence

from farandole.data.shares import equal_shares, slices
from farandole.errors import UsageError

Parts = Sequence[range]  # one rank's positions, in increasing order
Placement = Sequence[Parts]  # of each rank


def contiguous(context: int, ranks: int) -> Placement:
    """Return one part per rank; the parts' lengths differ by at most one.

    Raises:
        UsageError: more ranks than positions.
    """
    return [[part] for part in _cut(context, ranks, ranks)]


def zigzag(context: int, ranks: int) -> Placement:
    """Return two parts per rank, an early and a late one.

    Raises:
        UsageError: less than two positions per rank.
    """
    parts = _cut(context, 2 * ranks, ranks)
    return [[parts[rank], parts[2 * ranks - 1 - rank]] for rank in range(ranks)]


PLACEMENTS = {"zigzag": zigzag, "contiguous": contiguous}


def length(parts: Parts) -> int:
    """Return the number of positions."""
    return sum(map(len, parts))


def looks_at(queries: range, keys: range) -> int:
    """Return the number of pairs of a query and a key that is not after it, in O(1)."""
    after_all = max(0, queries.stop - max(queries.start, keys.stop))  # queries that see all of the keys
    others = range(max(queries.start, keys.start), min(queries.stop, keys.stop))  # that see some of them
    some = sum((others[0] - keys.start + 1, others[-1] - keys.start + 1)) * len(others) // 2 if others else 0
    return after_all * len(keys) + some


def work(placement: Placement) -> list[list[int]]:
    """Return the pairs that a rank computes, for each rank and each step of the ring.

    In step t rank r has the block of rank r − t. A step takes as long as the rank with the most pairs.
    """
    ranks = len(placement)
    return [
        [
            sum(looks_at(queries, keys) for queries in placement[rank] for keys in placement[(rank - step) % ranks])
            for step in range(ranks)
        ]
        for rank in range(ranks)
    ]


def _cut(context: int, parts: int, ranks: int) -> list[range]:
    if parts > context:
        fitting = context * ranks // parts
        raise UsageError(
            f"a sequence of {context} positions cannot be divided over {ranks} ranks: use at most {fitting}"
        )
    return [range(part.start, part.stop) for part in slices(equal_shares(context, parts))]
