"""Hierarchical all-reduce on the nodes that there are: in shared memory within each, by messages across.

Which ranks share a node is found out, once for each group. They add up in one window (`shared_memory`), each rank one
part; the ranks with the same part, one of each node, send it round in a ring from where it lies; then all fetch
the whole. Nodes may have different numbers of ranks: the smallest one says how many parts there are.

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
    """A group's ranks as they are spread over the nodes.

    Attributes:
        here: those of this node.
        across: one of each node, those with this one's place in it; None where some node has no such place.
        lanes: how many such groups there are: as many as the smallest node has ranks.
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
        node.Bcast(first)  # the same for all of a node, and for nobody else
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
    total = vectors.reduce(parts)
    if nodes.across:
        run(RING, nodes.across, total[parts[nodes.here.rank]])
    vectors.meet()
    buffer[:] = total[: len(buffer)]
