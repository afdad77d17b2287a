"""The options that every data-parallel scenario shares, so that their records compare."""

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter

from farandole.runtime.options import AtLeastOne, Positive, RunOptions


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class DataParallelOptions(RunOptions):
    """What is learned from what, and how fast."""

    data: Literal["digits", "mnist5k"] = "digits"
    """Real handwritten digits: 1,797 of 8×8 pixels, or 5,000 of 28×28."""

    model: Literal["mlp", "cnn"] = "mlp"
    """A multilayer perceptron, or a small convolutional network."""

    hidden: AtLeastOne = 128
    """Width of the hidden layers."""

    steps: AtLeastOne = 300
    """Optimizer steps."""

    batch: AtLeastOne = 64
    """Samples per step, over all ranks together."""

    lr: Positive = 0.3
    """Learning rate."""

    loading: Literal["scatter", "files"] = "scatter"
    """Rank 0 sends each rank its shard, or each maps its own file into memory."""

    capabilities: Annotated[tuple[float, ...], Parameter(consume_multiple=True, negative="", show_default=False)] = ()
    """How fast each rank is, one number a rank: shares follow. [default: equal shares]"""
