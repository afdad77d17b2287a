"""Tensor split: every matrix in blocks, and every rank works on every layer.

Document 004: seen from the computation, a model is split by cutting its matrices into blocks. A
layer's columns on each rank, the next layer's rows, and one all-reduce; attention by heads.

    farandole run tensor_split -n 2
    farandole run tensor_split -n 4 --data pydoc --model transformer --hidden 64
    farandole run tensor_split -n 4 --data pydoc --model transformer --hidden 64 --sequence-parallel
    farandole run tensor_split -n 2 --data pydoc --model transformer --recompute full
    mpirun -n 3 python -m farandole.scenarios.tensor_split --precision float64
"""

from dataclasses import dataclass

from cyclopts import Parameter

from farandole.distributed_checkpoint.options import CheckpointOptions
from farandole.model_parallel.options import ModelParallelOptions
from farandole.models.recomputation_options import RecomputationOptions
from farandole.scenarios import run_as_program


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Config(ModelParallelOptions, RecomputationOptions, CheckpointOptions):
    """Options of tensor_split."""

    sequence_parallel: bool = False
    """Of text, also divide norms and sums, by positions: nothing of a block's activations is whole on every rank."""


def main(config: Config) -> None:
    from farandole.model_parallel.layout import Layout
    from farandole.model_parallel.training import train
    from farandole.report.table import print_summary

    def layout(ranks: int) -> Layout:
        return Layout(
            tensor=ranks,
            sequence=config.sequence_parallel,
            recompute=config.recomputed(),
            unfused=config.unfused_attention,
            offload=config.offload_activations,
        )

    print_summary(train("tensor_split", config, layout), config.json)


if __name__ == "__main__":
    run_as_program(Config, main)
