"""Push-sum (SGP): decentralised SGD along edges that lead one way.

The same data, shares, model and record as sync_sgd. Every rank sends parts of its parameters along its edges; a weight
that travels with them removes the bias. What is evaluated is the mean of all copies.

    farandole run push_sum -n 4 --topology one-peer-exponential
    farandole run push_sum -n 4 --mixing-every 4
    mpirun -n 4 python -m farandole.scenarios.push_sum --graph my_graph.txt
"""

from dataclasses import dataclass

from cyclopts import Parameter

from farandole.decentralised.options import GossipOptions, check_graph
from farandole.errors import UsageError
from farandole.scenarios import run_as_program

BY_LENGTH = ("lars", "lars-normalised", "lamb")  # optimizers whose step depends on how long the parameters are


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Config(GossipOptions):
    """Options of push_sum."""


def check(config: Config) -> None:
    """Refuse options that do not go together.

    Raises:
        UsageError: two graphs, or an optimizer that x = w·z would mislead.
    """
    check_graph(config.topology, config.graph)
    if config.graph and config.optimizer in BY_LENGTH:
        raise UsageError(
            f"--optimizer {config.optimizer} goes by how long the parameters are, and with push-sum on a --graph these "
            "are w times too long: choose another optimizer"
        )


def main(config: Config) -> None:
    check(config)

    from torch import nn

    from farandole.data_parallel.training import optimizer_factory, train
    from farandole.decentralised.graph_file import read_or_build
    from farandole.decentralised.push_sum import PushSum
    from farandole.report.table import print_summary
    from farandole.runtime.world import World
    from farandole.tasks import Loss

    def strategy(world: World, model: nn.Module, loss: Loss) -> PushSum:
        graph = read_or_build(config.graph, config.topology, world.size)
        return PushSum(world, model, loss, optimizer_factory(config, model), graph, config.mixing_every)

    print_summary(train("push_sum", config, strategy), config.json)


if __name__ == "__main__":
    run_as_program(Config, main)
