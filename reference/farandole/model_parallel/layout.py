"""The layout of a model on the grid of data × pipeline × tensor ranks, and the order in which its parts work."""

from __future__ import annotations

from dataclasses import dataclass

from farandole.model_parallel import layer_split
from farandole.model_parallel.grid import Grid
from farandole.model_parallel.schedules.naive import NAIVE
from farandole.model_parallel.steps import Schedule, Times
from farandole.models.recomputation_options import Offload, Recomputed


@dataclass(frozen=True)
class Layout:
    """The layout of a model on the ranks, and the order in which its parts work.

    Attributes:
        data, pipeline, tensor: lengths of the grid's axes; their product is the number of ranks.
        recompute: what is computed again for the backward pass.
        unfused: attention keeps its square of positions.
        offload: where activations are kept; None: on the device.
        shard_optimizer: divide the optimizer's state over the data axis.
        balance: what the stages are to have equally much of.
        pace: how long each pass of a stage takes at least, in seconds.
        sequence: whether tensor ranks divide the positions where a layer is not divided.
        vertical_sync: whether, without a flush, all stages use the version of the parameters that the first one used.
    """

    data: int = 1
    pipeline: int = 1
    tensor: int = 1
    schedule: Schedule = NAIVE
    micro_batches: int = 1
    recompute: Recomputed = "none"
    unfused: bool = False
    offload: Offload | None = None
    shard_optimizer: bool = False
    balance: layer_split.Balance = "time"
    pace: Times | None = None
    vertical_sync: bool = False
    sequence: bool = False

    @property
    def grid(self) -> Grid:
        """Return which rank stands where."""
        return Grid(data=self.data, pipeline=self.pipeline, tensor=self.tensor)

    @property
    def parts_of_a_batch(self) -> int:
        """Into how many micro-batches a pipeline's batch is cut; without a flush it is not."""
        return self.micro_batches if self.schedule.flushes else 1

    @property
    def last(self) -> int:
        """Return the last virtual stage."""
        return self.schedule.placement.pieces(self.pipeline) - 1

    def holders(self, virtual: int) -> list[int]:
        """Return the ranks that have a virtual stage, on all pipelines and tensor ranks, in order."""
        stages = self.schedule.placement.stages_with(virtual, self.pipeline)
        return sorted(rank for stage in stages for rank in self.grid.at(pipeline=stage))
