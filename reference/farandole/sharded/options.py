"""The options of divided training."""

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter

from farandole.data_parallel.options import OptimizerOptions
from farandole.errors import UsageError
from farandole.runtime.numbers import AtLeastOne, Positive

Offload = Literal["host", "disk"]


@dataclass(frozen=True)
class Sharding:
    """The division of a training over ranks.

    Attributes:
        stage: 1: the optimizer's state; 2: gradients too; 3: parameters too.
        over: the number of ranks that divide the model; each group of this size holds a copy. None: all ranks.
        prefetch: stage 3 gathers a unit while the one before it computes.
        half: the model computes in bfloat16, and is gathered in it; each rank keeps its parts in their own type.
        offload: where the optimizer and its state are, if not on the rank's device.
        max_norm: the longest gradient that is not shortened; None: any.
    """

    stage: Literal[1, 2, 3] = 3
    over: int | None = None
    prefetch: bool = False
    half: bool = False
    offload: Offload | None = None
    max_norm: float | None = None


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ShardedOptions(OptimizerOptions):
    """The division of the training state."""

    optimizer: Literal["sgd", "momentum", "adam", "muon"] = "adam"
    """Plain, with momentum 0.9, or Adam: they remember no, one or two numbers for each parameter; or Muon: one for
    each of a hidden layer's matrix, and Adam's two for the others."""

    lr: Positive = 0.003
    """Learning rate; with sgd try 0.3."""

    stage: Literal[1, 2, 3] = 3
    """1: the ranks divide the optimizer's state. 2: gradients too. 3: parameters too (FSDP)."""

    shard_over: AtLeastOne | None = None
    """Ranks that divide the model among them, for instance those of a node; each group of this size holds a copy
    (hybrid sharding). Must divide the number of ranks. [default: all ranks]"""

    prefetch: Annotated[bool, Parameter(negative="")] = False
    """With --stage 3: gather the next unit while one computes. Takes the memory of one more unit."""

    precision: Literal["float32", "bfloat16"] = "float32"
    """Number format of forward, backward and of gathered parameters; each rank keeps its parts in float32."""

    offload: Offload | None = None
    """Keep the optimizer, its state and this rank's parts in the host's memory, or the state in a file, which lies in
    the folder for temporary files. [default: on the device]"""

    max_norm: Positive | None = None
    """Shorten the gradient of all ranks to this norm where it is longer. [default: leave it]"""

    def sharding(self, ranks: int) -> Sharding:
        """Return what is divided.

        Raises:
            UsageError: the options do not fit each other or the number of ranks.
        """
        if self.prefetch and self.stage < 3:
            raise UsageError(f"--prefetch is for --stage 3: with --stage {self.stage} the parameters are on every rank")
        if self.shard_over and ranks % self.shard_over:
            divisors = ", ".join(str(each) for each in range(1, ranks + 1) if ranks % each == 0)
            raise UsageError(f"--shard-over {self.shard_over}: {ranks} ranks make groups of {divisors}")
        half = self.precision == "bfloat16"
        return Sharding(self.stage, self.shard_over, self.prefetch, half, self.offload, self.max_norm)
