"""Synchronous data-parallel SGD over our own all-reduce.

Documents 000 to 004: the data is cut into one share per rank, every rank computes the gradient
of its part of the batch, an all-reduce forms the mean, and all copies of the model move alike.

    farandole run sync_sgd -n 4
    farandole run sync_sgd -n 4 --collective central
    farandole run sync_sgd -n 4 --slow rank=3,factor=3
    farandole run sync_sgd -n 2 --data pydoc --model transformer --hidden 64 --batch 32
    mpirun -n 4 python -m farandole.scenarios.sync_sgd --data mnist5k --model cnn --lr 0.1
"""

from dataclasses import dataclass
from typing import Literal

from cyclopts import Parameter

from farandole.data_parallel.options import DataParallelOptions
from farandole.scenarios import run_as_program


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Config(DataParallelOptions):
    """Options of sync_sgd."""

    collective: Literal[
        "central", "tree", "doubling", "halving-doubling", "ring", "segmented-ring",
        "hierarchical", "shared-memory", "mpi",
    ] = "ring"  # fmt: skip
    """Which all-reduce carries the gradients: one of ours, or MPI's."""


def main(config: Config) -> None:
    from torch import nn

    from farandole.collectives.all_reduce import ALL_REDUCES
    from farandole.data_parallel.synchronous import SynchronousSGD
    from farandole.data_parallel.training import train
    from farandole.report.table import print_summary
    from farandole.runtime.world import World

    def strategy(world: World, model: nn.Module) -> SynchronousSGD:
        ours = config.collective != "mpi"  # what MPI sends inside its own is not ours to count
        return SynchronousSGD(world, model, config.lr, ALL_REDUCES[config.collective], bytes_are_counted=ours)

    print_summary(train("sync_sgd", config, strategy), config.json)


if __name__ == "__main__":
    run_as_program(Config, main)
