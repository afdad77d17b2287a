"""The options that every model-parallel scenario shares, so that their records compare."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from farandole.errors import UsageError
from farandole.model_parallel.schedules import FLUSHED, NAMES
from farandole.models.options import TrainingOptions
from farandole.models.recomputation_options import RecomputationOptions
from farandole.runtime.choices import one_of
from farandole.runtime.numbers import AtLeastOne, Positive, real, whole

if TYPE_CHECKING:
    ScheduleName = str
    FlushedScheduleName = str
else:
    ScheduleName, FlushedScheduleName = one_of(NAMES), one_of(FLUSHED)

Context = Annotated[int, whole(gte=1, lte=16_384)]
Milliseconds = Annotated[float, real(gte=0, lte=60_000)]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ModelParallelOptions(TrainingOptions):
    """The training of a model in parts, however it is cut."""

    optimizer: Literal["sgd", "momentum", "adam"] = "sgd"
    """Plain, with momentum 0.9, or Adam; the last two keep one or two numbers for each parameter."""

    context: Context = 64
    """Characters in each passage into which the text of --data pydoc is cut: longer ones are fewer."""

    precision: Literal["float32", "float64"] = "float32"
    """Number format of parameters and activations; float64 distinguishes a split model from a wrong one."""

    def sample_shape(self) -> tuple[int, ...]:
        """Return the shape of one sample of --data: (channels, height, width), or (context,) of text.

        Raises:
            UsageError: --context for images.
        """
        shape = super().sample_shape()
        if len(shape) == 1:
            return (self.context,)
        if self.context != type(self).context:
            raise UsageError(
                f"--context {self.context} is the length of a text: give --data pydoc --model transformer, "
                "or leave it out"
            )
        return shape


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class LayerOptions(ModelParallelOptions):
    """Where the model is cut between layers."""

    balance: Literal["time", "memory", "layers"] = "time"
    """The quantity that is minimised for the largest part: measured time (on rank 0), memory (parameters, gradients and
    one micro-batch's activations), or layers."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class AdaptiveOptions(LayerOptions):
    """The properties of the ranks, for the choice of a mode."""

    memory_mb: Positive | None = None
    """Memory of each rank, in millions of bytes. [default: an equal part of what is free]"""

    flops: Positive | None = None
    """Operations per second of each rank, such as 2e9. [default: measured]"""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PipelineOptions(LayerOptions, RecomputationOptions):
    """The pipeline."""

    schedule: ScheduleName = "1f1b"
    """Order in which the stages work; pipedream processes whole batches and updates after each."""

    micro_batches: AtLeastOne = 8
    """Number of parts into which each batch is cut; pipedream cuts none."""

    chunks: AtLeastOne = 2
    """Number of pieces of the model on each rank, for the interleaved schedule."""

    pace_ms: Milliseconds = 0.0
    """Minimum duration of every pass of a stage (forward, backward for inputs, backward for weights)."""
