"""The options that the data-parallel scenarios share, so that their records compare."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from farandole.collectives.schedules import ALL_REDUCE_NAMES
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
    Collective = Literal[OwnCollective, "mpi"]
    CollectiveOrWindow = Literal[Collective, "window"]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class DataParallelOptions(TrainingOptions):
    """How the data come to the ranks, and which rank gets how much."""

    loading: Literal["scatter", "files"] = "scatter"
    """Rank 0 sends each rank its shard, or each maps its own file into memory."""

    capabilities: Annotated[
        tuple[Positive, ...], Parameter(consume_multiple=True, negative="", show_default=False)
    ] = ()
    """How fast each rank is, one number a rank: shares follow. [default: equal shares]"""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class LoopOptions(DataParallelOptions):
    """What goes on around the steps, for methods of which every rank has a copy of the model."""

    background_metrics: Annotated[bool, Parameter(negative="")] = False
    """Add up the ranks' losses in a thread, while the training goes on, instead of between two steps."""

    export: Annotated[bool, Parameter(negative="")] = False
    """Write the trained model as model.pt2 beside the record: it runs without this project (torch.export)."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class OptimizerOptions(LoopOptions):
    """What moves the parameters, and how fast."""

    optimizer: Literal["sgd", "momentum", "adam", "lars", "lars-normalised", "lamb"] = "sgd"
    """Plain, with momentum 0.9, or Adam (try --lr 0.003); for large batches LARS (2017; try --lr 10), the LARS that
    normalises after momentum (2020) or LAMB (try --lr 0.03 with both)."""

    l2: NotNegativeReal = 0.0
    """Add this times the parameters to their gradient: the penalty l2/2 times their squared norm."""

    weight_decay: NotNegativeReal = 0.0
    """Shrink the parameters by this times the learning rate in every step, whatever their gradient (decoupled)."""

    lr_batch: AtLeastOne | None = None
    """The batch that --lr is meant for: it grows in proportion to --batch. [default: --batch]"""

    warm_up: NotNegative = 0
    """Steps in which the learning rate rises to its peak."""

    lr_schedule: Literal["constant", "cosine", "plateau"] = "constant"
    """What the learning rate does after the warm-up: stay, fall along a cosine to 0, or fall to a tenth whenever the
    loss does not fall any more."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PrecisionOptions(RunOptions):
    """In how many bits is computed."""

    precision: Literal["float32", "float16", "bfloat16"] = "float32"
    """What forward and backward compute in; parameters are always kept in float32."""

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
class DynamicOptions(TrainingOptions):
    """How long a round is, and how the data are divided."""

    lr: Positive = 0.1
    """Learning rate."""

    period: AtLeastOne | None = None
    """Steps from one combination to the next, in every round. [default: from the measured times]"""

    equal_steps: Annotated[bool, Parameter(negative="")] = False
    """All ranks take the same number of steps, however fast they are."""

    kappa: Positive = 4.0
    """A round has this times the root of (all-reduce's time / a step's) steps."""

    longest: AtLeastOne = 64
    """The most steps of a round."""

    concentration: PositiveOrInf = float("inf")
    """How much alike the ranks' data are: 0.1: few classes each; inf: no difference but by chance."""

    collective: OwnCollective = "ring"
    """Which all-reduce combines."""

    def steps_at_most(self, ranks: int) -> int | None:
        return self.steps - 1 + max(self.longest, self.period or 0)  # the last round may begin with the last step


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SearchOptions(TrainingOptions):
    """What is tried."""

    trials: Annotated[int, whole(gte=1, lte=10_000)] = 16
    """How many to begin with; the better half of them goes on to twice as many steps, and so forth; the last two to
    --steps."""

    spread: Annotated[float, real(gte=1)] = 30.0
    """Learning rates are tried from --lr divided by so much to --lr times so much."""

    widths: Annotated[tuple[Width, ...], Parameter(consume_multiple=True, negative="", show_default=False)] = ()
    """Values of --hidden to try. [default: that one]"""

    def steps_at_most(self, ranks: int) -> int | None:
        return max(1, (self.trials - 1).bit_length())  # a step is a round, and each halves the trials, down to two
