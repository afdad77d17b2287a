"""The options of decentralised training: which graph, and how often neighbours average."""

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
    """Which ranks are neighbours, and how often they average."""

    topology: TopologyName = USUAL_TOPOLOGY
    """Which ranks are neighbours."""

    graph: Path | None = None
    """A file with a graph instead: a line for each edge, 0 1 for one that leads both ways, 0 > 1 for one way."""

    mixing_every: AtLeastOne = 1
    """Steps from one average to the next; between them each rank trains alone."""


def check_graph(topology: str, graph: Path | None) -> None:
    """Refuse a graph in a file beside one that is named.

    Raises:
        UsageError: both are given.
    """
    if graph and topology != USUAL_TOPOLOGY:
        raise UsageError("--graph takes the place of --topology: give one of them")
