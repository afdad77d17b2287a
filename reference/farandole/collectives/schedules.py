"""Every collective, one row each: how it is run and drawn, and what it is for.

The command line's ``--collective``, ``farandole draw``, ``farandole bench allreduce``, ``farandole simulate`` and the
tests read this table. A new collective is a file with a `Schedule`, and a row here. No MPI is needed to read it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from farandole.collectives import all_to_all, bidirectional_ring, central, doubling, halving_doubling, ring, tree
from farandole.collectives.double_binary_tree import double_binary_tree
from farandole.collectives.hierarchical import hierarchical
from farandole.collectives.pat import pat_all_gather, pat_reduce_scatter
from farandole.collectives.recursive import DOUBLING_ALL_GATHER, HALVING_REDUCE_SCATTER
from farandole.collectives.steps import Schedule


@dataclass(frozen=True)
class Collective:
    """One collective.

    Attributes:
        about: what it does, in a line.
        schedule: its steps; None where there are several forms of it, or no messages.
        form: the steps of one form, by a number: of segments, of chunks in a message, or of ranks of each node.
        runs: "module:function" that carries it out, if that is not `executor.run` with the schedule.
        is_all_reduce: whether it sums a vector over all ranks, in place, so that a training may use it.
        is_simulated: whether `farandole simulate` offers it; its schedule has a critical rank, for thousands of ranks.
    """

    about: str
    schedule: Schedule | None = None
    form: Callable[[int], Schedule] | None = None
    runs: str = ""
    is_all_reduce: bool = True
    is_simulated: bool = False


COLLECTIVES: dict[str, Collective] = {
    "broadcast": Collective("What rank 0 has, all get: down a tree.", tree.BROADCAST, is_all_reduce=False),
    "reduce": Collective("Rank 0 gets the sum of all: up a tree.", tree.REDUCE, is_all_reduce=False),
    "scatter": Collective(
        "Each rank gets its part of what rank 0 has: down a tree.", tree.SCATTER, is_all_reduce=False
    ),
    "gather": Collective("Rank 0 gets each rank's part: up a tree.", tree.GATHER, is_all_reduce=False),
    "reduce-scatter": Collective(
        "Each rank gets one part of the sum: half of a ring all-reduce.", ring.REDUCE_SCATTER, is_all_reduce=False
    ),
    "all-gather": Collective(
        "All get each rank's part: the other half of a ring all-reduce.", ring.ALL_GATHER, is_all_reduce=False
    ),
    "reduce-scatter-halving": Collective(
        "Each rank gets one part of the sum, in lgP rounds.", HALVING_REDUCE_SCATTER, is_all_reduce=False
    ),
    "all-gather-doubling": Collective(
        "All get each rank's part, in lgP rounds.", DOUBLING_ALL_GATHER, is_all_reduce=False
    ),
    "reduce-scatter-pat": Collective(
        "Each rank gets one part of the sum, up a tree whose root it is; neighbours first.",
        form=pat_reduce_scatter,
        is_all_reduce=False,
    ),
    "all-gather-pat": Collective(
        "All get each rank's part, down a tree for each rank; farthest first.",
        form=pat_all_gather,
        is_all_reduce=False,
    ),
    "all-to-all": Collective(
        "Each rank has a block for each other one: one partner per step.", all_to_all.PAIRWISE, is_all_reduce=False
    ),
    "all-to-all-bruck": Collective(
        "All-to-all in lgP rounds, each block in several of them.", all_to_all.BRUCK, is_all_reduce=False
    ),
    "central": Collective("All-reduce by one rank that adds everything up.", central.CENTRAL),
    "tree": Collective("All-reduce up a tree and down again.", tree.TREE, is_simulated=True),
    "double-binary-tree": Collective(
        "All-reduce by two trees, each for one half of the vector, in segments.",
        form=double_binary_tree,
        runs="farandole.collectives.executor:run_double_binary_tree",
    ),
    "doubling": Collective("All-reduce in lgP rounds, the whole vector in each.", doubling.DOUBLING),
    "halving-doubling": Collective(
        "All-reduce in 2lgP rounds with the bytes of a ring.", halving_doubling.HALVING_DOUBLING, is_simulated=True
    ),
    "ring": Collective("All-reduce from neighbour to neighbour, with the fewest bytes.", ring.RING, is_simulated=True),
    "bidirectional-ring": Collective(
        "All-reduce by two rings at once, with one half of the vector in each direction.",
        bidirectional_ring.BIDIRECTIONAL_RING,
    ),
    "segmented-ring": Collective(
        "The ring, each chunk in several messages.",
        form=ring.segmented,
        runs="farandole.collectives.executor:run_segmented_ring",
    ),
    "hierarchical": Collective(
        "All-reduce in a ring within each node, and in rings across the nodes.",
        form=hierarchical,
        runs="farandole.collectives.node_aware:all_reduce",
        is_simulated=True,
    ),
    "shared-memory": Collective(
        "All-reduce in memory that all ranks of a node share.", runs="farandole.collectives.shared_memory:all_reduce"
    ),
}

# Those that a training may use; those with one form, and those with several.
ALL_REDUCE_NAMES = tuple(name for name, row in COLLECTIVES.items() if row.is_all_reduce)
SCHEDULES = {name: (row.schedule, row.about) for name, row in COLLECTIVES.items() if row.schedule}
FAMILIES = {name: (row.form, row.about) for name, row in COLLECTIVES.items() if row.form}
