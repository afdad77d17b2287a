"""Expert parallel: a mixture of experts in each block of the transformer, with the experts divided over the ranks.

A router sends each token to a few experts, wherever these are, and their answers come back. So the parameters grow with
the number of ranks, while a token's computation does not. Everything else is data parallel. The training is that of one
process that has all experts.

    farandole run expert_parallel -n 4
    farandole run expert_parallel -n 4 --experts 16 --top-k 1 --capacity 1
    farandole run expert_parallel -n 4 --capacity 0 --balance 0
    mpirun -n 3 python -m farandole.scenarios.expert_parallel --precision float64
"""

from dataclasses import dataclass

from cyclopts import Parameter

from farandole.distributed_checkpoint.options import CheckpointOptions
from farandole.model_parallel.expert.options import ExpertOptions
from farandole.scenarios import run_as_program


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Config(ExpertOptions, CheckpointOptions):
    """Options of expert_parallel."""


def main(config: Config) -> None:
    from farandole.model_parallel.expert.training import train
    from farandole.report.table import print_summary

    print_summary(train("expert_parallel", config), config.json)


if __name__ == "__main__":
    run_as_program(Config, main)
