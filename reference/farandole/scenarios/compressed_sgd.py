"""Synchronous SGD with compressed gradients: fewer bytes, some error, and time to encode and decode.

Documents 001 and 002: gradients are quantised, made sparse, or approximated by matrices of low rank before they are
exchanged. The summary has the seconds of encoding, transfer and decoding apart; on a fast network compression loses.

    farandole run compressed_sgd -n 4 --compressor top-k --fraction 0.01
    farandole run compressed_sgd -n 4 --compressor sign --link-mbps 100
    farandole run compressed_sgd -n 4 --compressor sign --no-feedback
    farandole run compressed_sgd -n 4 --compressor majority-vote --lr 0.003
    farandole run compressed_sgd -n 4 --compressor terngrad --terngrad-clip 2.5 --share-scales
    farandole run compressed_sgd -n 4 --compressor qsgd --levels 7 --bucket 512
    farandole run compressed_sgd -n 4 --compressor powersgd --matrix-rank 2
    farandole run compressed_sgd -n 4 --compressor dgc --fraction 0.001 --sparsity-warm-up 50
    farandole run compressed_sgd -n 4 --compressor none
"""

from dataclasses import dataclass

from cyclopts import Parameter

from farandole.compression.options import CompressionOptions
from farandole.data_parallel.options import OptimizerOptions
from farandole.scenarios import run_as_program


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Config(CompressionOptions, OptimizerOptions):
    """Options of compressed_sgd."""


def main(config: Config) -> None:
    from torch import nn

    from farandole.compression import choices
    from farandole.compression.options import check
    from farandole.data_parallel.compressed import CompressedSGD
    from farandole.data_parallel.training import optimizer_factory, train
    from farandole.report.table import print_summary
    from farandole.runtime.buffers import trained
    from farandole.runtime.world import World
    from farandole.tasks import Loss

    check(config, config.optimizer)

    def strategy(world: World, model: nn.Module, loss: Loss) -> CompressedSGD:
        make = optimizer_factory(config, model)
        shapes = [tuple(each.shape) for each in trained(model)]
        return CompressedSGD(
            world, model, loss, make, choices.build(config, shapes, config.seed, world.rank, world.size)
        )

    print_summary(train("compressed_sgd", config, strategy), config.json)


if __name__ == "__main__":
    run_as_program(Config, main)
