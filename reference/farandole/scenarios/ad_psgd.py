"""AD-PSGD: decentralised SGD without common steps. A rank that has a gradient averages with one neighbour.

The same data, shares, model and record as sync_sgd. A slow rank takes fewer of the iterations and delays no other rank.
Edges count both ways, whatever the round. What is evaluated is the mean of all copies.

    farandole run ad_psgd -n 4
    farandole run ad_psgd -n 4 --slow rank=3,factor=3
    mpirun -n 4 python -m farandole.scenarios.ad_psgd --topology torus --link-mbps 100
"""

from dataclasses import dataclass

from cyclopts import Parameter

from farandole.decentralised.options import GossipOptions, check_graph
from farandole.errors import UsageError
from farandole.scenarios import run_as_program


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Config(GossipOptions):
    """Options of ad_psgd."""

    def steps_at_most(self, ranks: int) -> int | None:
        return self.steps * ranks  # a fast rank takes a slow one's


def check(config: Config) -> None:
    """Refuse options that do not go together.

    Raises:
        UsageError: two graphs, or a learning rate that needs a loss known to all.
    """
    check_graph(config.topology, config.graph)
    if config.lr_schedule == "plateau":
        raise UsageError(
            "--lr-schedule plateau needs the loss of a step on all ranks at once, and ad_psgd has no common steps: "
            "choose another"
        )


def main(config: Config) -> None:
    check(config)

    from torch import nn

    from farandole.data_parallel.training import optimizer_factory, train
    from farandole.decentralised.ad_psgd import ADPSGD
    from farandole.decentralised.asynchronous import asynchronous_loop
    from farandole.decentralised.graph_file import read_or_build
    from farandole.report.table import print_summary
    from farandole.runtime.world import World
    from farandole.tasks import Loss

    def strategy(world: World, model: nn.Module, loss: Loss) -> ADPSGD:
        graph = read_or_build(config.graph, config.topology, world.size)
        return ADPSGD(world, model, loss, optimizer_factory(config, model), graph, config.mixing_every, config.seed)

    print_summary(train("ad_psgd", config, strategy, asynchronous_loop), config.json)


if __name__ == "__main__":
    run_as_program(Config, main)
