"""The options that every data-parallel scenario shares, so that their records compare."""

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter

from farandole.models.options import TrainingOptions

# Those of `collectives.all_reduce`.
Collective = Literal[
    "central", "tree", "doubling", "halving-doubling", "ring", "segmented-ring", "hierarchical", "shared-memory", "mpi"
]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class DataParallelOptions(TrainingOptions):
    """How the data come to the ranks, and which rank gets how much."""

    loading: Literal["scatter", "files"] = "scatter"
    """Rank 0 sends each rank its shard, or each maps its own file into memory."""

    capabilities: Annotated[tuple[float, ...], Parameter(consume_multiple=True, negative="", show_default=False)] = ()
    """How fast each rank is, one number a rank: shares follow. [default: equal shares]"""
