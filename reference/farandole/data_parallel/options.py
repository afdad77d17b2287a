"""The options that the data-parallel scenarios share, so that their records compare."""

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from farandole.models.options import TrainingOptions
from farandole.runtime.options import AtLeastOne

# Those of `collectives.all_reduce`.
Collective = Literal[
    "central", "tree", "doubling", "halving-doubling", "ring", "segmented-ring", "hierarchical", "shared-memory", "mpi"
]
NotNegative = Annotated[float, Parameter(validator=Number(gte=0))]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class DataParallelOptions(TrainingOptions):
    """How the data come to the ranks, and which rank gets how much."""

    loading: Literal["scatter", "files"] = "scatter"
    """Rank 0 sends each rank its shard, or each maps its own file into memory."""

    capabilities: Annotated[tuple[float, ...], Parameter(consume_multiple=True, negative="", show_default=False)] = ()
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

    optimizer: Literal["sgd", "momentum", "adam", "lars", "lamb"] = "sgd"
    """Plain, with momentum 0.9, or Adam (try --lr 0.003); for large batches LARS or LAMB (try --lr 0.03)."""

    l2: NotNegative = 0.0
    """Add so much of the parameters to their gradient: the penalty l2/2 times their squared norm."""

    weight_decay: NotNegative = 0.0
    """Shrink the parameters by so much of the learning rate in every step, whatever their gradient (decoupled)."""

    lr_batch: AtLeastOne | None = None
    """The batch that --lr is meant for: it grows in proportion to --batch. [default: --batch]"""

    warm_up: Annotated[int, Parameter(validator=Number(gte=0))] = 0
    """So many steps until the learning rate has risen to what it is to be."""

    lr_schedule: Literal["constant", "cosine", "plateau"] = "constant"
    """What the learning rate does then: stay, fall along a cosine to 0, or fall to a tenth whenever the loss
    does not fall any more."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class SearchOptions(TrainingOptions):
    """What is tried."""

    trials: Annotated[int, Parameter(validator=Number(gte=1, lte=10_000))] = 16
    """How many to begin with; the better half of them goes on to twice as many steps, and so forth; the last two to
    --steps."""

    spread: Annotated[float, Parameter(validator=Number(gte=1))] = 30.0
    """Learning rates are tried from --lr divided by so much to --lr times so much."""

    widths: Annotated[tuple[AtLeastOne, ...], Parameter(consume_multiple=True, negative="", show_default=False)] = ()
    """Values of --hidden to try. [default: that one]"""
