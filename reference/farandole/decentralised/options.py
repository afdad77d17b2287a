"""The options of decentralised training: the graph, and how often neighbours average."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import Parameter

from farandole.data_parallel.options import OptimizerOptions
from farandole.decentralised.topologies import TOPOLOGIES
from farandole.errors import UsageError
from farandole.runtime.choices import one_of
from farandole.runtime.numbers import AtLeastOne

if TYPE_CHECKING:
    TopologyName = str
else:
    TopologyName = one_of(TOPOLOGIES)

USUAL_TOPOLOGY = "ring"


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class GossipOptions(OptimizerOptions):
    """The graph of neighbours, and how often they average."""

    topology: TopologyName = USUAL_TOPOLOGY
    """The graph of neighbours."""

    graph: Path | None = None
    """File with a graph to use instead, one line per edge: 0 1 is undirected, 0 > 1 is directed."""

    mixing_every: AtLeastOne = 1
    """Steps from one average to the next; between them each rank trains alone."""


def check_graph(topology: str, graph: Path | None) -> None:
    """Refuse a graph in a file together with a named one.

    Raises:
        UsageError: both are given.
    """
    if graph and topology != USUAL_TOPOLOGY:
        raise UsageError("--graph takes the place of --topology: give one of them")
