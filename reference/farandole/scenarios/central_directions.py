"""Directions from a centre: it collects all gradients, and sends each rank its own direction.

Document 001 describes this as decentralised SGD, though it has a centre (erratum 001.8). The same data, shares, model
and record as sync_sgd. What is evaluated is the mean of all copies.

    farandole run central_directions -n 4
    farandole run central_directions -n 4 --own-weight 0.2
    mpirun -n 4 python -m farandole.scenarios.central_directions --own-weight 0
"""

from dataclasses import dataclass

from cyclopts import Parameter

from farandole.data_parallel.options import OptimizerOptions
from farandole.runtime.numbers import UnitInterval
from farandole.scenarios import run_as_program


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Config(OptimizerOptions):
    """Options of central_directions."""

    own_weight: UnitInterval = 0.5
    """Weight of a rank's own gradient in its direction, as far as it agrees with the mean; 0: synchronous SGD."""


def main(config: Config) -> None:
    from torch import nn

    from farandole.data_parallel.training import optimizer_factory, train
    from farandole.decentralised.central_directions import CentralDirections
    from farandole.report.table import print_summary
    from farandole.runtime.world import World
    from farandole.tasks import Loss

    def strategy(world: World, model: nn.Module, loss: Loss) -> CentralDirections:
        return CentralDirections(world, model, loss, optimizer_factory(config, model), config.own_weight)

    print_summary(train("central_directions", config, strategy), config.json)


if __name__ == "__main__":
    run_as_program(Config, main)
