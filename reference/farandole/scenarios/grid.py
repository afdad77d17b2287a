"""Six axes at once: data × shard × pipeline × expert × context × tensor, any factorisation of the ranks.

The small transformer is divided in every way of the model-parallel scenarios, each along an axis of its own: copies of
everything, shards of parameters and optimizer state, stages, experts, positions of the sequence, and matrices. It
learns what the unsplit model learns.

    farandole run grid -n 8 --pipeline-ranks 2 --context-ranks 2 --tensor-ranks 2
    farandole run grid -n 8 --shard-ranks 2 --expert-ranks 2 --experts 8 --tensor-ranks 2
    farandole run grid -n 4 --shard-ranks 2 --pipeline-ranks 2 --schedule interleaved --save trained
    mpirun -n 6 python -m farandole.scenarios.grid --context-ranks 3 --precision float64
"""

from dataclasses import dataclass

from cyclopts import Parameter

from farandole.distributed_checkpoint.options import CheckpointOptions
from farandole.grid.options import GridOptions
from farandole.scenarios import run_as_program


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Config(GridOptions, CheckpointOptions):
    """Options of grid."""


def main(config: Config) -> None:
    from farandole.grid.run import train
    from farandole.report.table import print_summary

    print_summary(train("grid", config), config.json)


if __name__ == "__main__":
    run_as_program(Config, main)
