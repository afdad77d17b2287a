"""The division of a large transformer's training over ranks: the input of the calculators.

    ranks = data × context × pipeline × tensor

Tensor ranks divide every layer, a pipeline the layers, context ranks each sequence, and data ranks the batch; ZeRO
divides the training state over data and context ranks, which hold the same parameters. A step's batch is cut into
micro-batches, each of which passes the pipeline by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from farandole.data.shares import equal_shares, slices
from farandole.errors import UsageError
from farandole.model_parallel.schedules import choose
from farandole.model_parallel.steps import Schedule
from farandole.models.shape import Shape

Recompute = Literal["none", "selective", "full", "stage"]


@dataclass(frozen=True)
class TrainingPlan:
    """The grid, the batch and what is computed again.

    Attributes:
        micro_batch: sequences that pass the model together.
        batch: sequences of a step, of all ranks. None: as many micro-batches as the pipeline has stages.
        schedule: of the pipeline, one of `schedules.FLUSHED`.
        chunks: pieces of the model on each rank, with the interleaved schedule.
        zero: ZeRO's stage: 0: every rank holds all; 1: optimizer state is divided; 2: gradients too; 3: parameters too.
        sequence_parallel: the tensor ranks divide norms and dropout by positions.
        recompute: none; selective: attention's square; full: each layer, of which only the inputs are kept; stage: all
            layers of a stage together, as `pipeline --recompute` does.
    """

    ranks: int = 1
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    micro_batch: int = 1
    batch: int | None = None
    schedule: str = "1f1b"
    chunks: int = 2
    zero: int = 0
    sequence_parallel: bool = False
    recompute: Recompute = "none"

    def __post_init__(self) -> None:
        if self.ranks % self.model_ranks:
            below = self.ranks // self.model_ranks * self.model_ranks
            fitting = " or ".join(str(each) for each in (below, below + self.model_ranks) if each)
            raise UsageError(
                f"--tensor {self.tensor} × --pipeline {self.pipeline} × --context {self.context} = {self.model_ranks} "
                f"does not divide --ranks {self.ranks}: give {fitting} ranks"
            )
        together = self.data * self.micro_batch
        if self.batch is not None and self.batch % together:
            fitting = " or ".join(str(each) for each in _multiples(self.batch, together))
            raise UsageError(
                f"--batch {self.batch}: {self.data} data ranks with --micro-batch {self.micro_batch} take multiples of "
                f"{together}: give {fitting}"
            )

    @property
    def model_ranks(self) -> int:
        """Return over how many ranks one sequence is divided."""
        return self.tensor * self.pipeline * self.context

    @property
    def data(self) -> int:
        return self.ranks // self.model_ranks

    @property
    def copies(self) -> int:
        """Return over how many ranks ZeRO divides: those that hold the same part of the model."""
        return self.data * self.context

    @property
    def micro_batches(self) -> int:
        """Return the number of micro-batches in a step of one pipeline."""
        return self.pipeline if self.batch is None else self.batch // (self.data * self.micro_batch)

    @property
    def sequences(self) -> int:
        """Return the number of sequences in a step."""
        return self.data * self.micro_batch * self.micro_batches

    @cached_property
    def pipeline_schedule(self) -> Schedule:
        return choose(self.schedule, self.chunks)

    def stages(self, shape: Shape) -> list[dict[int, Piece]]:
        """Return for each stage of the pipeline its pieces of the model, by chunk.

        Raises:
            UsageError: the model cannot be divided in this way.
        """
        placement = self.pipeline_schedule.placement
        number = placement.pieces(self.pipeline)
        if number > shape.layers:
            raise UsageError(f"{shape.layers} layers cannot be cut into {number} pieces: give a smaller --pipeline")
        for whole, name, parts, option in (
            (shape.heads, "heads", self.tensor, "tensor"),
            (shape.sequence, "positions", self.context, "context"),
        ):
            if whole % parts:
                fitting = max(each for each in range(1, parts + 1) if whole % each == 0)
                raise UsageError(f"--{option} {parts} does not divide {whole} {name}: give {fitting}")
        layers = [part.stop - part.start for part in slices(equal_shares(shape.layers, number))]
        virtual = [
            {chunk: placement.virtual_stage(stage, chunk, self.pipeline) for chunk in range(placement.chunks)}
            for stage in range(self.pipeline)
        ]
        return [
            {chunk: Piece(layers[each], each == 0, each == number - 1) for chunk, each in own.items()}
            for own in virtual
        ]


@dataclass(frozen=True)
class Piece:
    """Consecutive layers of a model.

    Attributes:
        layers: number of blocks.
        first, last: whether the embedding and the head are in it.
    """

    layers: int
    first: bool
    last: bool


def _multiples(number: int, of: int) -> list[int]:
    below = number // of * of
    return [each for each in (below, below + of) if each]
