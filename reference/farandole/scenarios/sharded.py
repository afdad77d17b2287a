"""Sharded data parallel (ZeRO, FSDP): the ranks divide optimizer state, gradients and parameters.

Each rank keeps a part of them, and gathers a layer's parameters only while it computes with them. So a model may be
larger than one rank's memory, though every rank works on all layers. The training is that of one process.

    farandole run sharded -n 4
    farandole run sharded -n 4 --stage 1
    farandole run sharded -n 4 --stage 2 --optimizer momentum --lr 0.05
    farandole run sharded -n 4 --shard-over 2 --prefetch --precision bfloat16
    farandole run sharded -n 4 --data pydoc --model transformer --hidden 64 --batch 32 --recompute full
    mpirun -n 3 python -m farandole.scenarios.sharded --stage 3
"""

from dataclasses import dataclass

from cyclopts import Parameter

from farandole.distributed_checkpoint.options import CheckpointOptions
from farandole.models.recomputation_options import BlockRecomputationOptions
from farandole.scenarios import run_as_program
from farandole.sharded.options import ShardedOptions


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Config(ShardedOptions, BlockRecomputationOptions, CheckpointOptions):
    """Options of sharded."""


def main(config: Config) -> None:
    from functools import partial

    from torch import nn

    from farandole.data_parallel.training import train
    from farandole.distributed_checkpoint import storage
    from farandole.errors import UsageError
    from farandole.models.optimizers import maker
    from farandole.report.table import print_summary
    from farandole.runtime.world import World
    from farandole.sharded import muon
    from farandole.sharded.checkpoint import load, save
    from farandole.sharded.optimizers import on_parts
    from farandole.sharded.training import ShardedSGD
    from farandole.tasks import Loss

    if config.optimizer == "muon" and (config.save or config.load):
        raise UsageError("--save and --load know no state of --optimizer muon: choose adam, momentum or sgd")
    config.recomputed()

    def strategy(world: World, model: nn.Module, loss: Loss) -> ShardedSGD:
        given = config.lr, config.l2, config.weight_decay
        is_muon = config.optimizer == "muon"
        make_optimizer = muon.for_units(model, *given) if is_muon else on_parts(maker(config.optimizer, *given))
        made = ShardedSGD(world, model, loss, make_optimizer, config.sharding(world.size), config.optimizer, config)
        if config.save:
            storage.make(config.save, world.control)
            made.at_end = partial(save, made, config.save)
        if config.load:
            load(made, config.load)
        return made

    print_summary(train("sharded", config, strategy), config.json)


if __name__ == "__main__":
    run_as_program(Config, main)
