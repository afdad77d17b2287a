"""Hybrid parallel: data × pipeline × tensor, any factorisation of the ranks.

Documents 000 and 004: the modes combined. Tensor ranks are neighbours, since they communicate most; then
come the stages of a pipeline; the copies of the pipeline share the data, and may share the
optimizer's state (ZeRO-1).

    farandole run hybrid -n 4 --pipeline-ranks 2 --data-ranks 2
    farandole run hybrid -n 4 --tensor-ranks 2 --data pydoc --model transformer --hidden 64
    farandole run hybrid -n 4 --data-ranks 4 --optimizer adam --lr 0.001 --shard-optimizer
    mpirun -n 8 python -m farandole.scenarios.hybrid --pipeline-ranks 2 --tensor-ranks 2
"""

from dataclasses import dataclass

from cyclopts import Parameter

from farandole.distributed_checkpoint.options import CheckpointOptions
from farandole.model_parallel.options import FlushedScheduleName, PipelineOptions
from farandole.runtime.numbers import AtLeastOne
from farandole.scenarios import run_as_program


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Config(PipelineOptions, CheckpointOptions):
    """Options of hybrid."""

    schedule: FlushedScheduleName = "1f1b"
    """Order in which the stages of a pipeline work."""

    micro_batches: AtLeastOne = 4
    """Number of parts into which each pipeline's part of the batch is cut."""

    data_ranks: AtLeastOne | None = None
    """Copies of the pipeline, each with its share of the data. [default: all ranks over the other two]"""

    pipeline_ranks: AtLeastOne = 1
    """Stages of each pipeline."""

    tensor_ranks: AtLeastOne = 1
    """Ranks that share each layer."""

    shard_optimizer: bool = False
    """Divide the optimizer's state over the data axis (ZeRO-1)."""


def main(config: Config) -> None:
    from farandole.model_parallel.grid import fitting
    from farandole.model_parallel.layout import Layout
    from farandole.model_parallel.schedules import choose
    from farandole.model_parallel.training import pace, train
    from farandole.report.table import print_summary

    def layout(ranks: int) -> Layout:
        wanted = {"data": config.data_ranks, "pipeline": config.pipeline_ranks, "tensor": config.tensor_ranks}
        grid = fitting(ranks, wanted)
        return Layout(
            grid.data,
            grid.pipeline,
            grid.tensor,
            schedule=choose(config.schedule, config.chunks),
            micro_batches=config.micro_batches,
            recompute=config.recomputed(),
            unfused=config.unfused_attention,
            offload=config.offload_activations,
            shard_optimizer=config.shard_optimizer,
            balance=config.balance,
            pace=pace(config.pace_ms),
        )

    print_summary(train("hybrid", config, layout), config.json)


if __name__ == "__main__":
    run_as_program(Config, main)
