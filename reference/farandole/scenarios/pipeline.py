"""Pipeline parallel: batches are cut into micro-batches, so that all stages work at the same time.

Naive, GPipe, 1F1B, interleaved, PipeDream, zero-bubble (ZB-H1), ZB-H2, ZB-V and DualPipe differ in the order in which a
stage takes the micro-batches forward and backward, and so in memory and in idle time. With --spares the pipeline
outlives its ranks: the state of each stage is in the memory of the next.

    farandole run pipeline -n 4 --schedule 1f1b --micro-batches 8
    farandole run pipeline -n 4 --schedule gpipe --recompute
    farandole run pipeline -n 2 --data pydoc --model transformer --recompute selective --unfused-attention
    farandole run pipeline -n 4 --schedule zero-bubble --pace-ms 5
    farandole run pipeline -n 4 --schedule dualpipe --depth 3
    farandole run pipeline -n 4 --schedule pipedream --vertical-sync
    farandole run pipeline -n 5 --spares 1 --backup-every 5 --fail rank=2,step=23
    mpirun -n 2 python -m farandole.scenarios.pipeline --schedule interleaved --chunks 3 --depth 6
"""

from dataclasses import dataclass

from cyclopts import Parameter

from farandole.distributed_checkpoint.options import CheckpointOptions
from farandole.errors import UsageError
from farandole.recovery.options import PipelineBackupOptions
from farandole.scenarios import run_as_program


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Config(PipelineBackupOptions, CheckpointOptions):
    """Options of pipeline."""

    vertical_sync: bool = False
    """With --schedule pipedream: make all stages use the version of the parameters that the first stage used."""


def main(config: Config) -> None:
    from farandole.model_parallel.layout import Layout
    from farandole.model_parallel.schedules import choose
    from farandole.model_parallel.training import pace, train
    from farandole.recovery import stage_backup
    from farandole.report.table import print_summary

    def layout(ranks: int) -> Layout:
        return Layout(
            pipeline=ranks,
            schedule=choose(config.schedule, config.chunks),
            micro_batches=config.micro_batches,
            recompute=config.recomputed(),
            unfused=config.unfused_attention,
            offload=config.offload_activations,
            balance=config.balance,
            pace=pace(config.pace_ms),
            vertical_sync=config.vertical_sync,
        )

    if config.is_protected:
        if config.save or config.load:
            raise UsageError("--save and --load are for a pipeline without --spares and --backup-every: leave them out")
        summary = stage_backup.train("pipeline", config, layout)
    else:
        summary = train("pipeline", config, layout)
    print_summary(summary, config.json)


if __name__ == "__main__":
    run_as_program(Config, main)
