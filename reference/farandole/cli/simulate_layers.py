"""The options of ``farandole simulate`` for what is counted layer by layer: the model, and compressed gradients."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from farandole.compression.options import EncodingOptions
from farandole.cost.published import MODELS
from farandole.model_parallel.schedules import ONE_WAY
from farandole.runtime.choices import one_of
from farandole.runtime.numbers import AtLeastOne, NotNegative, NotNegativeReal

if TYPE_CHECKING:
    from farandole.models.shape import Shape

    ModelName = str
    ScheduleName = str
else:
    ModelName, ScheduleName = one_of(MODELS), one_of(ONE_WAY)

BYTES = 4  # of a number
FROM_MODEL = ("parameters", "units", "activation_mb")  # what --model gives instead


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class LayeredOptions(EncodingOptions):
    """The model and its layers."""

    parameters: AtLeastOne = 10_000_000
    """Number of parameters, of 4 bytes each."""

    model: ModelName | None = None
    """A transformer whose parameters and layers are simulated, in place of --parameters and --units."""

    units: AtLeastOne = 12
    """zero-1, zero-2, zero-3: units of the model, as its blocks, which are gathered and reduced one by one; powersgd:
    each is one square matrix; grid: the layers."""

    matrix_rank: AtLeastOne = 2
    """powersgd: the rank of the approximation of each matrix."""

    share_scales: Annotated[bool, Parameter(negative="")] = False
    """terngrad: the ranks first exchange their scales, and all of them use the largest."""

    encode_ms: NotNegativeReal = 0.0
    """Compressed gradients: time to encode and decode a gradient."""

    stages: AtLeastOne | None = None
    """Pipelines, grid: stages of a pipeline. [default: the largest divisor of the number of workers, up to 8]"""

    micro_batches: AtLeastOne | None = None
    """Pipelines, grid: parts into which a pipeline's batch is cut. [default: four for each stage]"""

    activation_mb: NotNegativeReal = 1.0
    """Pipelines, grid: megabytes of a micro-batch's outputs between two layers."""

    micro_batch: AtLeastOne = 1
    """Pipelines, grid with --model: sequences in a micro-batch, from which its activations follow."""

    chunks: AtLeastOne = 2
    """interleaved: pieces of the model on each worker."""

    schedule: ScheduleName = "1f1b"
    """grid: the schedule of its pipelines."""

    tensor: AtLeastOne = 1
    """grid: workers that divide each layer, within a node, where a message costs a tenth."""

    shard_ranks: AtLeastOne = 1
    """grid: workers that divide parameters, gradients and optimizer state of each copy (ZeRO-3)."""

    expert_ranks: AtLeastOne = 1
    """grid: workers that divide the experts of each layer, with --experts."""

    context_ranks: AtLeastOne = 1
    """grid: workers that divide the positions of each sequence, with ring attention."""

    experts: NotNegative = 0
    """grid: experts in each layer, which get equally many tokens. 0: a feed-forward network instead."""

    top_k: AtLeastOne = 2
    """grid with --experts: experts that each token is sent to."""

    @property
    def shape(self) -> "Shape | None":
        """Return the shape of --model."""
        return MODELS[self.model] if self.model else None

    @property
    def nbytes(self) -> int:
        """Return the bytes of the parameters."""
        return BYTES * (self.shape.parameters if self.shape else self.parameters)

    @property
    def layers(self) -> int:
        """Return the number of units of the model."""
        return self.shape.layers if self.shape else self.units

    @property
    def boundary(self) -> float:
        """Return the bytes of a micro-batch's outputs between two layers."""
        return BYTES * self.shape.boundary(self.micro_batch) if self.shape else 1e6 * self.activation_mb

    def layered(self) -> dict[str, Any]:
        """Return the fields of a `Choice` that these options determine."""
        from farandole.compression.options import CompressionOptions

        compression = CompressionOptions(
            levels=self.levels, bucket=self.bucket, fraction=self.fraction, matrix_rank=self.matrix_rank,
            share_scales=self.share_scales,
        )  # fmt: skip
        return {
            "compression": compression, "encode_s": self.encode_ms / 1e3, "model": self.shape, "stages": self.stages,
            "micro_batches": self.micro_batches, "chunks": self.chunks, "activation": 1e6 * self.activation_mb,
            "micro_batch": self.micro_batch, "schedule": self.schedule, "tensor": self.tensor,
            "shard_ranks": self.shard_ranks, "expert_ranks": self.expert_ranks, "context_ranks": self.context_ranks,
            "experts": self.experts, "top_k": self.top_k,
        }  # fmt: skip
