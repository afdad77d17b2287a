"""The all-reduces that a scenario can choose from, under the names of its ``--collective``.

Each sums a vector over all ranks, in place; each of ours leaves the same bits on every rank.
"""

from __future__ import annotations

from functools import partial

from farandole.collectives import node_aware, shared_memory
from farandole.collectives.bidirectional_ring import BIDIRECTIONAL_RING
from farandole.collectives.central import CENTRAL
from farandole.collectives.doubling import DOUBLING
from farandole.collectives.executor import AllReduce, run, run_segmented_ring
from farandole.collectives.halving_doubling import HALVING_DOUBLING
from farandole.collectives.ring import RING
from farandole.collectives.tree import TREE
from farandole.runtime.communicator import Communicator

ALL_REDUCES: dict[str, AllReduce] = {
    "central": partial(run, CENTRAL),
    "tree": partial(run, TREE),
    "doubling": partial(run, DOUBLING),
    "halving-doubling": partial(run, HALVING_DOUBLING),
    "ring": partial(run, RING),
    "bidirectional-ring": partial(run, BIDIRECTIONAL_RING),
    "segmented-ring": run_segmented_ring,
    "hierarchical": node_aware.all_reduce,
    "shared-memory": shared_memory.all_reduce,
    "mpi": Communicator.mpi_all_reduce,
}
