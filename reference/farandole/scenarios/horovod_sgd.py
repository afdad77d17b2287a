"""Synchronous data-parallel SGD by Horovod, to compare with sync_sgd.

The same data, shares, model and record as sync_sgd; Horovod's DistributedOptimizer reduces the
gradients. Its messages are not counted, so the record's byte counts are null.

    farandole run horovod_sgd -n 4
"""

from dataclasses import dataclass

from cyclopts import Parameter

from farandole.data_parallel.options import LoopOptions
from farandole.scenarios import run_as_program


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Config(LoopOptions):
    """The options that all data-parallel scenarios share."""

    def unfit_for_cards(self) -> str:
        from farandole.data_parallel.horovod_twin import unfit_for_cards

        return unfit_for_cards()


def main(config: Config) -> None:
    from torch import nn

    from farandole.data_parallel.horovod_twin import HorovodSGD
    from farandole.data_parallel.training import train
    from farandole.report.table import print_summary
    from farandole.runtime.world import World
    from farandole.tasks import Loss

    def strategy(world: World, model: nn.Module, loss: Loss) -> HorovodSGD:
        return HorovodSGD(world, model, loss, config.lr, config.accumulate)

    print_summary(train("horovod_sgd", config, strategy), config.json)


if __name__ == "__main__":
    run_as_program(Config, main)
