"""Synchronisation-agnostic SGD: each rank takes as many steps as its share allows, and a centre combines them.

Document 001's synchronous algorithm with different steps on each rank; the text leaves the rule open.

    farandole run agnostic_sgd -n 4 --capabilities 1 1 2 4 --local-batch 4
    farandole run agnostic_sgd -n 4 --capabilities 1 1 2 4 --local-batch 4 --rule plain
    farandole run agnostic_sgd -n 4 --paces 1 1 0.5 0.25
    mpirun -n 4 python -m farandole.scenarios.agnostic_sgd --data mnist5k --batch 256 --local-batch 16
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter

from farandole.data_parallel.options import Collective, LoopOptions
from farandole.errors import UsageError
from farandole.runtime.numbers import AtLeastOne, Positive
from farandole.scenarios import run_as_program


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Config(LoopOptions):
    """Options of agnostic_sgd."""

    lr: Positive = 0.1
    """Learning rate."""

    local_batch: AtLeastOne | None = None
    """Number of samples in a local step: a round has as many steps as the rank's part of --batch allows. [default: one
    step]"""

    paces: Annotated[tuple[Positive, ...], Parameter(consume_multiple=True, negative="", show_default=False)] = ()
    """Factors of --lr, one per rank. [default: 1]"""

    rule: Literal["normalised", "plain"] = "normalised"
    """The moves that are combined: each rank's mean step (normalised), or its whole move (plain)."""

    collective: Collective = "ring"
    """The all-reduce that combines the ranks' moves."""


def main(config: Config) -> None:
    from torch import nn

    from farandole.collectives.all_reduce import all_reduce_of
    from farandole.data_parallel.agnostic import AgnosticSGD
    from farandole.data_parallel.training import train
    from farandole.report.table import print_summary
    from farandole.runtime.world import World
    from farandole.tasks import Loss

    def strategy(world: World, model: nn.Module, loss: Loss) -> AgnosticSGD:
        if config.paces and len(config.paces) != world.size:
            raise UsageError(f"--paces has {len(config.paces)} numbers: give one for each of {world.size} ranks")
        return AgnosticSGD(
            world,
            model,
            loss,
            config.lr,
            config.paces[world.rank] if config.paces else 1.0,
            config.local_batch,
            config.rule == "normalised",
            all_reduce_of(config.collective, world.comm),
            bytes_are_counted=config.collective != "mpi",
        )

    print_summary(train("agnostic_sgd", config, strategy), config.json)


if __name__ == "__main__":
    run_as_program(Config, main)
