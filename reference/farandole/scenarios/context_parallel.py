"""Context parallel: each sequence is divided over the ranks, and every rank has all parameters.

For sequences whose activations are too large for one device. Ring attention passes keys and values around; Ulysses
divides the heads for as long as attention takes. The training is that of the unsplit model.

    farandole run context_parallel -n 4
    farandole run context_parallel -n 4 --attention ulysses
    farandole run context_parallel -n 4 --placement contiguous
    farandole run context_parallel -n 4 --context 1024 --batch 8
    mpirun -n 3 python -m farandole.scenarios.context_parallel --precision float64
"""

from dataclasses import dataclass

from cyclopts import Parameter

from farandole.distributed_checkpoint.options import CheckpointOptions
from farandole.model_parallel.context.options import ContextOptions
from farandole.scenarios import run_as_program


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Config(ContextOptions, CheckpointOptions):
    """Options of context_parallel."""


def main(config: Config) -> None:
    from farandole.model_parallel.context.training import train
    from farandole.report.table import print_summary

    print_summary(train("context_parallel", config), config.json)


if __name__ == "__main__":
    run_as_program(Config, main)
