"""D-PSGD: every rank averages its parameters with its neighbours' in a graph, and there is no centre.

The same data, shares, model and record as sync_sgd. What is evaluated is the mean of all copies; consensus_error in the
metrics is how far they were apart.

    farandole run dpsgd -n 4
    farandole run dpsgd -n 4 --topology torus --mixing-every 4
    farandole run dpsgd -n 4 --topology complete --mix-after-update
    mpirun -n 4 python -m farandole.scenarios.dpsgd --graph my_graph.txt
"""

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from farandole.decentralised.options import GossipOptions, check_graph
from farandole.scenarios import run_as_program


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Config(GossipOptions):
    """Options of dpsgd."""

    mix_after_update: Annotated[bool, Parameter(negative="")] = False
    """Average the parameters after the update, instead of before it."""


def main(config: Config) -> None:
    check_graph(config.topology, config.graph)

    from torch import nn

    from farandole.data_parallel.training import optimizer_factory, train
    from farandole.decentralised.dpsgd import DPSGD
    from farandole.decentralised.graph_file import read_or_build
    from farandole.report.table import print_summary
    from farandole.runtime.world import World
    from farandole.tasks import Loss

    def strategy(world: World, model: nn.Module, loss: Loss) -> DPSGD:
        graph = read_or_build(config.graph, config.topology, world.size)
        make = optimizer_factory(config, model)
        return DPSGD(world, model, loss, make, graph, config.mixing_every, config.mix_after_update)

    print_summary(train("dpsgd", config, strategy), config.json)


if __name__ == "__main__":
    run_as_program(Config, main)
