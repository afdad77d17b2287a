"""Local SGD: ranks train alone and average their parameters every few steps.

Document 000's rule w ← (1−α)w + αw', document 003's six steps, document 004's MapReduce SGD and synchronising less
often: the same data, shares, model and record as sync_sgd.

    farandole run local_sgd -n 4 --period 8
    farandole run local_sgd -n 4 --period 8 --alpha 0.5
    farandole run local_sgd -n 4 --once
    farandole run local_sgd -n 4 --synchronous 100 --period 16
    mpirun -n 4 python -m farandole.scenarios.local_sgd --data mnist5k --period 32
"""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from farandole.data_parallel.options import Collective, OptimizerOptions
from farandole.runtime.numbers import AtLeastOne, NotNegative, Part
from farandole.scenarios import run_as_program


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Config(OptimizerOptions):
    """Options of local_sgd."""

    period: AtLeastOne = 8
    """Steps from one average to the next."""

    once: Annotated[bool, Parameter(negative="")] = False
    """Average only once, after the last step: MapReduce SGD."""

    alpha: Part = 1.0
    """How far each rank moves towards the mean; 1: onto it. After the last step it is always 1."""

    synchronous: NotNegative = 0
    """Number of synchronous steps at the start: post-local SGD."""

    collective: Collective = "ring"
    """The all-reduce that forms the mean: one of ours, or MPI's."""


def main(config: Config) -> None:
    from torch import nn

    from farandole.collectives.all_reduce import all_reduce_of
    from farandole.data_parallel.local_sgd import LocalSGD
    from farandole.data_parallel.training import optimizer_factory, train
    from farandole.report.table import print_summary
    from farandole.runtime.world import World
    from farandole.tasks import Loss

    def strategy(world: World, model: nn.Module, loss: Loss) -> LocalSGD:
        return LocalSGD(
            world,
            model,
            loss,
            optimizer_factory(config, model),
            all_reduce_of(config.collective, world.comm),
            period=None if config.once else config.period,
            alpha=config.alpha,
            synchronous=config.synchronous,
            bytes_are_counted=config.collective != "mpi",
        )

    print_summary(train("local_sgd", config, strategy), config.json)


if __name__ == "__main__":
    run_as_program(Config, main)
