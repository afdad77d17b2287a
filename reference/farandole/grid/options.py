"""The options of the six axes."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from farandole.errors import UsageError
from farandole.model_parallel.expert.options import ExpertOptions, Factor
from farandole.model_parallel.grid import AXES, Grid, fitting
from farandole.models.recomputation_options import RecomputationOptions
from farandole.runtime.choices import one_of
from farandole.runtime.numbers import AtLeastOne, whole

# Those whose backward passes come whole, and whose stages have no copies.
SCHEDULES = ("naive", "gpipe", "1f1b", "interleaved")

if TYPE_CHECKING:
    GridScheduleName = str
else:
    GridScheduleName = one_of(SCHEDULES)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class GridOptions(ExpertOptions, RecomputationOptions):
    """The number of ranks along each axis; their product is the number of ranks."""

    data_ranks: AtLeastOne | None = None
    """Copies of everything, each with its share of the samples. [default: all ranks over the other axes]"""

    shard_ranks: AtLeastOne = 1
    """Ranks that divide parameters, gradients and optimizer state of each copy (ZeRO-3), and share its samples."""

    pipeline_ranks: AtLeastOne = 1
    """Stages of each pipeline."""

    expert_ranks: AtLeastOne = 1
    """Ranks that divide the experts, with --experts; they share the samples, too."""

    context_ranks: AtLeastOne = 1
    """Ranks that divide the positions of each sequence, with ring attention."""

    tensor_ranks: AtLeastOne = 1
    """Ranks that divide the matrices of each layer."""

    experts: Annotated[int, whole(gte=0, lte=4_096)] = 0
    """Experts in each block. 0: a feed-forward network instead."""

    capacity: Factor = 0.0
    """Choices that an expert, with all its copies, accepts of a micro-batch, in even shares of all choices; the rest is
    dropped. 0: no limit."""

    schedule: GridScheduleName = "1f1b"
    """Order in which the stages of a pipeline work."""

    micro_batches: AtLeastOne = 2
    """Number of parts into which each rank's part of the batch is cut."""

    chunks: AtLeastOne = 2
    """Number of pieces of the model on each rank, for the interleaved schedule."""

    def grid(self, ranks: int) -> Grid:
        """Return which rank stands where.

        Raises:
            UsageError: the axes do not multiply to `ranks`, or their combination has no meaning.
        """
        wanted = {axis: getattr(self, f"{axis}_ranks") for axis in AXES}
        grid = fitting(ranks, {axis: length for axis, length in wanted.items() if axis == "data" or length > 1})
        if self.model != "transformer":
            raise UsageError("the grid divides a transformer: give --model transformer --data pydoc")
        if grid.expert > 1 and not self.experts:
            raise UsageError(f"--expert-ranks {grid.expert} have no experts to divide: give --experts, such as 8")
        if grid.context > 1 and self.experts and self.capacity:
            raise UsageError(
                "--capacity drops the last tokens of a batch, and which these are would depend on --context-ranks: "
                "give --capacity 0, or --context-ranks 1"
            )
        if grid.context > 1 and (self.recompute == "selective" or self.unfused_attention):
            option = "--unfused-attention" if self.unfused_attention else "--recompute selective"
            raise UsageError(f"{option}: ring attention keeps no square of positions: leave it out, or --context-ranks")
        if self.experts and self.recompute in ("full", "stage"):
            raise UsageError(
                f"--recompute {self.recompute} would send every token to its experts once more: give selective"
            )
        return grid
