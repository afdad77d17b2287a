"""Every schedule of a collective, under the name by which it is drawn, with what it is for."""

from __future__ import annotations

from collections.abc import Callable

from farandole.collectives import bidirectional_ring, central, doubling, halving_doubling, ring, tree
from farandole.collectives.hierarchical import hierarchical
from farandole.collectives.steps import Schedule

SCHEDULES: dict[str, tuple[Schedule, str]] = {
    "broadcast": (tree.BROADCAST, "What rank 0 has, all get: down a tree."),
    "reduce": (tree.REDUCE, "Rank 0 gets the sum of all: up a tree."),
    "scatter": (tree.SCATTER, "Each rank gets its part of what rank 0 has: down a tree."),
    "gather": (tree.GATHER, "Rank 0 gets each rank's part: up a tree."),
    "reduce-scatter": (ring.REDUCE_SCATTER, "Each rank gets one part of the sum: half of a ring all-reduce."),
    "all-gather": (ring.ALL_GATHER, "All get each rank's part: the other half of a ring all-reduce."),
    "central": (central.CENTRAL, "All-reduce by one rank that adds everything up."),
    "tree": (tree.TREE, "All-reduce up a tree and down again."),
    "doubling": (doubling.DOUBLING, "All-reduce in lgP rounds, the whole vector in each."),
    "halving-doubling": (halving_doubling.HALVING_DOUBLING, "All-reduce in 2lgP rounds with the bytes of a ring."),
    "ring": (ring.RING, "All-reduce from neighbour to neighbour, with the fewest bytes."),
    "bidirectional-ring": (
        bidirectional_ring.BIDIRECTIONAL_RING,
        "All-reduce by two rings at once, with one half of the vector in each direction.",
    ),
}
# Those of many forms: by how many segments each chunk has, and by how many ranks each node has.
FAMILIES: dict[str, tuple[Callable[[int], Schedule], str]] = {
    "segmented-ring": (ring.segmented, "The ring, each chunk in several messages."),
    "hierarchical": (hierarchical, "All-reduce in a ring within each node, and in rings across the nodes."),
}
