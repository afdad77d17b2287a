"""The options of Downpour: how often a replica exchanges with the servers, and which labels it knows."""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from farandole.parameter_server.options import ServerOptions
from farandole.runtime.numbers import AtLeastOne, NotNegativeReal, Positive
from farandole.runtime.options import without


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
@without("server_change")
class DownpourOptions(ServerOptions):
    """The replicas: their messages to the servers, and their labels."""

    steps: AtLeastOne = 600
    """Iterations, on average over the replicas; the servers take one step for every n_push of one replica."""

    lr: Positive = 0.02
    """Learning rate of the servers' Adagrad."""

    local_lr: NotNegativeReal = 0.3
    """Learning rate of the steps that a replica takes on its own between two fetches; 0: none."""

    n_fetch: AtLeastOne = 5
    """Iterations from one fetch of the parameters to the next."""

    n_push: AtLeastOne = 5
    """Iterations whose gradients are pushed together."""

    overlap: bool = True
    """Compute while a fetch or a push is on its way."""

    tasks: Annotated[bool, Parameter(negative="")] = False
    """Let the manager assign tasks of n_push mini-batches to idle workers, and reassign those of dead or late workers.
    A worker fetches before each task, and waits for the answer to its push."""

    label_sets: AtLeastOne | None = None
    """Give each replica the samples of this number of classes only, which it numbers from 0. [default: all]"""

    align: bool = True
    """With --label-sets: let the manager map the replicas' labels to one common numbering."""

    def flops_per_sample(self) -> int | None:
        return None if self.label_sets else super().flops_per_sample()  # the replicas' last layers differ

    def steps_at_most(self, ranks: int) -> int | None:
        return self.steps * ranks + self.n_fetch + self.n_push
