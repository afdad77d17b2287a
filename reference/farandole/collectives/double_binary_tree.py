"""Double binary tree: each half of the vector has its own tree, and the inner nodes of one are leaves of the other.

A binary tree has few rounds, and uses half of the links: its leaves send and receive the vector once, its inner nodes
several times. Here a second tree has the leaves of the first as inner nodes. Each tree carries one half of the vector,
so that every rank sends and receives about the same.

    8 ranks       0                           7
                  └─ 4 ─┬─ 2 ─┬─ 1            └─ 3 ─┬─ 5 ─┬─ 6        the second is the mirror image of the first;
                        │     └─ 3                  │     └─ 4        if P is odd, the first moved on by one rank
                        └─ 6 ─┬─ 5                  └─ 1 ─┬─ 2
                              └─ 7                        └─ 0

In the first tree a number with lowest bit b has the children b/2 before and after it, so the odd ranks are its leaves.
Where P is odd, rank 0 is an inner node twice; no other rank ever is.

Each half is cut into segments that follow each other: while one comes down, the next is still on its way up. So a step
of an inner node has up to four messages in each direction: from its children and to its parent, from its parent and to
its children, and one of each as a leaf of the other tree.

Cost for k segments of each half and trees of depth D ≤ lgP: 2D + k − 1 steps, each α + 2n/k·β at most. With few
segments this is a tree's latency, with many nearly the ring's bandwidth, 2nβ. Source: Sanders, Speck & Träff, "Two-tree
algorithms for full bandwidth broadcast, reduction and scan", 2009; NVIDIA's NCCL has had it since version 2.4.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache

from farandole.collectives.steps import Exchange, Schedule, Together

ROOT = 0


def all_reduce(rank: int, size: int, segments: int) -> Iterator[Together]:
    """Yield the rank's steps on 2·`segments` chunks; the first half of them belongs to the first tree."""
    ticks: defaultdict[int, list[Exchange]] = defaultdict(list)
    for tree in range(2):
        for tick, message in _in_tree(tree, rank, size, segments):
            ticks[tick].append(message)
    for tick in sorted(ticks):
        yield Together(tuple(ticks[tick]))


def _in_tree(tree: int, rank: int, size: int, segments: int) -> Iterator[tuple[int, Exchange]]:
    """Yield what a rank sends and receives in one tree, and when: a segment needs one tick for each edge."""
    place = place_in(tree, rank, size)
    height, below = _depth(size), _depth_of(place, size)
    up_at, down_at = height - below, height + below
    above = None if place == ROOT else rank_at(tree, parent(place, size), size)
    under = [rank_at(tree, child, size) for child in children(place, size)]
    for segment in range(segments):
        chunk = tree * segments + segment
        for child in under:
            yield segment + up_at - 1, Exchange(recv=chunk, source=child, reduce=True)
            yield segment + down_at, Exchange(send=chunk, to=child)
        if above is not None:
            yield segment + up_at, Exchange(send=chunk, to=above)
            yield segment + down_at - 1, Exchange(recv=chunk, source=above)


def place_in(tree: int, rank: int, size: int) -> int:
    """Return a rank's number in a tree."""
    if tree == 0:
        return rank
    return size - 1 - rank if size % 2 == 0 else (rank - 1) % size


def rank_at(tree: int, place: int, size: int) -> int:
    """Return the rank with this number in a tree."""
    if tree == 0:
        return place
    return size - 1 - place if size % 2 == 0 else (place + 1) % size


def parent(place: int, size: int) -> int:
    """Return the number next to which a number lies, as far away as its lowest bit says: before or after it."""
    bit = place & -place
    above = (place ^ bit) | bit << 1
    return above if above < size else place ^ bit


def children(place: int, size: int) -> list[int]:
    """Return the numbers below; the root has one, the largest power of two."""
    if place == ROOT:
        return [1 << (size - 1).bit_length() - 1] if size > 1 else []
    half = (place & -place) >> 1
    before = [place - half] if half else []
    while half and place + half >= size:
        half >>= 1
    return before + ([place + half] if half else [])


def _depth_of(place: int, size: int) -> int:
    depth = 0
    while place != ROOT:
        place, depth = parent(place, size), depth + 1
    return depth


@lru_cache
def _depth(size: int) -> int:
    """Return how many edges there are between the root and the farthest leaf."""
    return max(_depth_of(place, size) for place in range(size))


@lru_cache
def double_binary_tree(segments: int) -> Schedule:
    """Return the all-reduce with this number of segments of each half."""

    def steps(rank: int, size: int) -> Iterator[Together]:
        return all_reduce(rank, size, segments)

    plural = "" if segments == 1 else "s"
    name = f"double binary tree, {segments} segment{plural} a half"
    return Schedule(name, steps, lambda size: 2 * segments, operation="all-reduce")
