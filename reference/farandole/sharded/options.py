"""The options of divided training."""

from dataclasses import dataclass
from typing import Literal

from cyclopts import Parameter

from farandole.data_parallel.options import OptimizerOptions
from farandole.runtime.numbers import Positive


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ShardedOptions(OptimizerOptions):
    """What is divided."""

    optimizer: Literal["sgd", "momentum", "adam"] = "adam"
    """Plain, with momentum 0.9, or Adam; they remember no, one or two numbers for each parameter."""

    lr: Positive = 0.003
    """Learning rate; with sgd try 0.3."""

    stage: Literal[1, 2, 3] = 3
    """1: the ranks divide the optimizer's state. 2: gradients too. 3: parameters too (FSDP)."""
