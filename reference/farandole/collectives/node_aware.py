"""Hierarchical all-reduce on the actual nodes: shared memory within each node, messages between nodes.

The ranks of each node are determined once per group. They add up in one window (`shared_memory`), each rank one part.
The ranks with the same part, one per node, all-reduce it in a ring, in place. Then all ranks copy the whole vector.
Nodes may have different numbers of ranks; the smallest one determines the number of parts.

Cost: that of `shared_memory` within, and across 2(M−1)(α + n/(LM)·β) for M nodes, the smallest of L ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from mpi4py import MPI

from farandole.collectives.executor import run
from farandole.collectives.ring import RING
from farandole.collectives.shared_memory import window
from farandole.collectives.steps import chunk_slices
from farandole.runtime.communicator import Buffer, Communicator


@dataclass(frozen=True)
class Nodes:
    """A group's ranks, by the nodes they run on.

    Attributes:
        here: those of this node.
        across: one rank per node, at the same place as this one; None where some node has no such place.
        lanes: number of such groups: the ranks of the smallest node.
    """

    here: Communicator
    across: Communicator | None
    lanes: int


def nodes_of(comm: Communicator) -> Nodes:
    """Found out once for a group. Collective.

    Raises:
        UsageError: `--link-mbps` is to slow down messages, of which there are none within a node.
    """
    instead = "choose another one, or hosts with slow links between them (farandole hosts)"
    comm.refuse("within a node --collective hierarchical", instead)
    if "nodes" not in comm.kept:
        node = comm.mpi.Split_type(MPI.COMM_TYPE_SHARED)
        first = np.array([comm.rank])
        node.Bcast(first)  # the same on all ranks of a node, and on no others
        lanes = np.array([node.size])
        node.Free()
        comm.mpi.Allreduce(MPI.IN_PLACE, lanes, MPI.MIN)
        here = comm.split(int(first[0]), comm.rank)
        across = comm.split(here.rank, comm.rank)
        comm.kept["nodes"] = Nodes(here, across if here.rank < lanes[0] else None, int(lanes[0]))
    found: Nodes = comm.kept["nodes"]
    return found


def all_reduce(comm: Communicator, buffer: Buffer) -> None:
    """Sum `buffer`, one contiguous vector, over all ranks, in place. Collective."""
    nodes = nodes_of(comm)
    parts = chunk_slices(len(buffer), nodes.lanes)
    vectors = window(nodes.here, buffer)
    vectors.own[: len(buffer)] = buffer
    with comm.collective("all-reduce", buffer.nbytes):
        total = vectors.reduce(parts)
        if nodes.across:
            run(RING, nodes.across, total[parts[nodes.here.rank]])
        vectors.meet()
    buffer[:] = total[: len(buffer)]
