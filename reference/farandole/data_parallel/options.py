"""The options that the data-parallel scenarios share, so that their records compare."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from farandole.collectives.schedules import ALL_REDUCE_NAMES
from farandole.data.shares import equal_shares, proportional_shares
from farandole.errors import UsageError
from farandole.models.options import TrainingOptions, Width
from farandole.runtime.choices import one_of
from farandole.runtime.numbers import AtLeastOne, NotNegative, NotNegativeReal, Positive, PositiveOrInf, real, whole
from farandole.runtime.options import RunOptions

if TYPE_CHECKING:
    OwnCollective = str
    Collective = str
    CollectiveOrWindow = str
else:
    OwnCollective = one_of(ALL_REDUCE_NAMES)
    Collective = Literal[OwnCollective, "auto", "mpi"]
    CollectiveOrWindow = Literal[Collective, "window"]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class DataParallelOptions(TrainingOptions):
    """The data's way to the ranks, and each rank's share."""

    loading: Literal["scatter", "files"] = "scatter"
    """Rank 0 sends each rank its shard, or each maps its own file into memory."""

    capabilities: Annotated[
        tuple[Positive, ...], Parameter(consume_multiple=True, negative="", show_default=False)
    ] = ()
    """Speed of each rank, one number per rank; the shares are proportional. [default: equal shares]"""

    def shares(self, samples: int, ranks: int) -> list[int]:
        """Return each rank's number of samples.

        Raises:
            UsageError: another number of capabilities than of ranks.
        """
        if not self.capabilities:
            return equal_shares(samples, ranks)
        if len(self.capabilities) != ranks:
            raise UsageError(f"--capabilities has {len(self.capabilities)} numbers: give one for each of {ranks} ranks")
        return proportional_shares(samples, self.capabilities)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class AccumulationOptions(RunOptions):
    """The gradients that are added up before they are sent."""

    accumulate: AtLeastOne = 1
    """Gradient accumulation: compute each rank's part of the batch in this many micro-batches, add up their gradients,
    then communicate. It takes the activations of one micro-batch, and is called gradient_accumulation_steps elsewhere;
    --batch stays the batch of all ranks."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class LoopOptions(DataParallelOptions, AccumulationOptions):
    """Metrics and export, where every rank has the whole model."""

    background_metrics: Annotated[bool, Parameter(negative="")] = False
    """Add up the ranks' losses in a thread during the training, instead of between two steps."""

    export: Annotated[bool, Parameter(negative="")] = False
    """Write the trained model as model.pt2 beside the record: it runs without this project (torch.export)."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class OptimizerOptions(LoopOptions):
    """The optimizer and its learning rate."""

    optimizer: Literal["sgd", "momentum", "adam", "muon", "lars", "lars-normalised", "lamb"] = "sgd"
    """Plain, with momentum 0.9, or Adam (try --lr 0.003); Muon, for the matrices of hidden layers, with Adam for the
    rest (try --lr 0.003); for large batches LARS (2017; try --lr 10), the LARS that normalises after momentum (2020) or
    LAMB (try --lr 0.03 with both)."""

    l2: NotNegativeReal = 0.0
    """Add this times the parameters to their gradient: the penalty l2/2 times their squared norm."""

    weight_decay: NotNegativeReal = 0.0
    """Shrink the parameters by this times the learning rate in every step, independently of the gradient (decoupled).
    """

    lr_batch: AtLeastOne | None = None
    """The batch that --lr is meant for: it grows in proportion to --batch. [default: --batch]"""

    warm_up: NotNegative = 0
    """Steps in which the learning rate rises to its peak."""

    lr_schedule: Literal["constant", "cosine", "plateau"] = "constant"
    """The learning rate after the warm-up: constant, falling along a cosine to 0, or divided by ten whenever the loss
    stops falling."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PrecisionOptions(RunOptions):
    """The number format of the computation."""

    precision: Literal["float32", "float16", "bfloat16"] = "float32"
    """Number format of forward and backward; parameters are always kept in float32."""

    float32_layers: Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative="", show_default=False)] = ()
    """With --precision: layers that still compute in float32: norms, softmax, or names of the model's modules."""


def check_precision(options: PrecisionOptions) -> None:
    """Refuse layers that are to stay in float32 in a training where all layers do.

    Raises:
        UsageError: --float32-layers is given without a half precision.
    """
    if options.float32_layers and options.precision == "float32":
        raise UsageError("--float32-layers is for --precision float16 or bfloat16: leave it out, or add one of these")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class DynamicOptions(TrainingOptions, AccumulationOptions):
    """The length of a round, and the division of the data."""

    lr: Positive = 0.1
    """Learning rate."""

    period: AtLeastOne | None = None
    """Steps from one combination to the next, in every round. [default: from the measured times]"""

    equal_steps: Annotated[bool, Parameter(negative="")] = False
    """All ranks take the same number of steps, whatever their speed."""

    kappa: Positive = 4.0
    """κ: a round has κ·√(time of an all-reduce / time of a step) steps."""

    longest: AtLeastOne = 64
    """The largest number of steps in a round."""

    concentration: PositiveOrInf = float("inf")
    """Similarity of the ranks' data. 0.1: few classes each; inf: they differ by chance alone."""

    collective: OwnCollective = "ring"
    """The all-reduce that combines the ranks' results."""

    def steps_at_most(self, ranks: int) -> int | None:
        return self.steps - 1 + max(self.longest, self.period or 0)  # the last round may begin with the last step


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SearchOptions(TrainingOptions, AccumulationOptions):
    """The trials of a search."""

    trials: Annotated[int, whole(gte=1, lte=10_000)] = 16
    """Number of trials at the start; the better half continues to twice as many steps, and so on; the last two train to
    --steps."""

    spread: Annotated[float, real(gte=1)] = 30.0
    """Learning rates are tried from --lr divided by this to --lr times this."""

    widths: Annotated[tuple[Width, ...], Parameter(consume_multiple=True, negative="", show_default=False)] = ()
    """Values of --hidden to try. [default: that one]"""

    def steps_at_most(self, ranks: int) -> int | None:
        return max(1, (self.trials - 1).bit_length())  # a step is a round, and each halves the trials, down to two

    def flops_per_sample(self) -> int | None:
        return None if self.widths else super().flops_per_sample()  # the trials' models differ
