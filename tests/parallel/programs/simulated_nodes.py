"""For the programs here: the ranks of this machine, as if they were on several nodes."""

from collections import Counter

from mpi4py import MPI

from farandole.collectives.node_aware import nodes_of
from farandole.runtime.communicator import Communicator


class OnNodes(MPI.Intracomm):
    """All ranks, with `per_node` on each simulated node; the last node may have fewer."""

    per_node: int

    def Split_type(self, *_: object) -> MPI.Intracomm:
        return self.Split(self.rank // self.per_node, self.rank)


def on_nodes_of(per_node: int) -> Communicator:
    mpi = OnNodes(MPI.COMM_WORLD)
    mpi.per_node = per_node
    comm = Communicator(mpi)
    rank, size = mpi.rank, mpi.size
    nodes = nodes_of(comm)
    assert nodes.here.members == [other for other in range(size) if other // per_node == rank // per_node]
    assert nodes.lanes == min(Counter(other // per_node for other in range(size)).values())
    if rank % per_node >= nodes.lanes:
        assert nodes.across is None, "the smallest node has no such place"
    else:
        assert nodes.across is not None
        assert nodes.across.members == [other for other in range(size) if other % per_node == rank % per_node]
    return comm
