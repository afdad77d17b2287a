"""DiLoCo: ranks train alone for many steps, and an outer Nesterov step follows the mean of their moves.

Document 004's rarer synchronisation as language models are trained over slow networks: the same data, shares, model and
record as local_sgd.

    farandole run diloco -n 4 --period 50
    farandole run diloco -n 4 --period 50 --fragments 5
    farandole run diloco -n 4 --period 50 --fragments 5 --delay 5    # while its messages travel, the ranks train on
    farandole run diloco -n 4 --outer-lr 1 --outer-momentum 0    # local SGD, with AdamW
    mpirun -n 4 python -m farandole.scenarios.diloco --data mnist5k --period 30
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter

from farandole.data_parallel.options import Collective, OptimizerOptions
from farandole.runtime.numbers import AtLeastOne, NotNegative, NotNegativeReal, Positive, real
from farandole.scenarios import run_as_program


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Config(OptimizerOptions):
    """Options of diloco."""

    optimizer: Literal["sgd", "momentum", "adam", "muon", "lars", "lars-normalised", "lamb"] = "adam"
    """The inner optimizer, of each rank's own steps."""

    lr: Positive = 0.003
    """Learning rate of the inner optimizer."""

    weight_decay: NotNegativeReal = 0.1
    """Shrink the parameters by this times the learning rate in every inner step, independently of the gradient."""

    period: AtLeastOne = 25
    """Inner steps from one outer step to the next."""

    outer_lr: Positive = 0.7
    """Learning rate of the outer optimizer."""

    outer_momentum: Annotated[float, real(gte=0, lt=1)] = 0.9
    """Nesterov momentum of the outer optimizer."""

    fragments: AtLeastOne = 1
    """Parts of the parameters, which have their outer steps at other times of the period (streaming DiLoCo)."""

    delay: NotNegative = 0
    """Inner steps while a part's messages are under way (streaming DiLoCo); the ranks do not wait for them before."""

    mixing: Annotated[float, real(gte=0, lt=1)] = 0.5
    """With --delay: how much a rank keeps of its own parameters; the rest is from the outer step."""

    collective: Collective = "ring"
    """The all-reduce that forms the mean: one of ours, or MPI's."""


def main(config: Config) -> None:
    from torch import nn

    from farandole.collectives.all_reduce import all_reduce_of
    from farandole.data_parallel.diloco import DiLoCo
    from farandole.data_parallel.outer_step import Outer
    from farandole.data_parallel.training import optimizer_factory, train
    from farandole.report.table import print_summary
    from farandole.runtime.world import World
    from farandole.tasks import Loss

    def strategy(world: World, model: nn.Module, loss: Loss) -> DiLoCo:
        return DiLoCo(
            world,
            model,
            loss,
            optimizer_factory(config, model),
            all_reduce_of(config.collective, world.comm),
            Outer(
                config.period,
                config.outer_lr,
                config.outer_momentum,
                config.fragments,
                config.delay,
                config.mixing,
            ),
            bytes_are_counted=config.collective != "mpi",
        )

    print_summary(train("diloco", config, strategy), config.json)


if __name__ == "__main__":
    run_as_program(Config, main)
