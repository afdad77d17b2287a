"""Layer split: the model is cut into parts, one a rank, and one part works at a time.

Documents 000, 003 and 004: the model is uploaded on a root and cut where the costliest part costs
least, each rank is sent its part and the plan, activations go forward and gradients back, and in
the end the root gathers the whole. While one rank works the others wait:
`farandole show` draws why pipelines were invented.

    farandole run layer_split -n 3
    farandole run layer_split -n 4 --data pydoc --model transformer --hidden 64 --balance memory
    mpirun -n 2 python -m farandole.scenarios.layer_split --precision float64
"""

from dataclasses import dataclass

from cyclopts import Parameter

from farandole.distributed_checkpoint.options import CheckpointOptions
from farandole.model_parallel.options import LayerOptions
from farandole.scenarios import run_as_program


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Config(LayerOptions, CheckpointOptions):
    """Options of layer_split."""


def main(config: Config) -> None:
    from farandole.model_parallel.layout import Layout
    from farandole.model_parallel.training import train
    from farandole.report.table import print_summary

    def layout(ranks: int) -> Layout:
        return Layout(pipeline=ranks, balance=config.balance)

    print_summary(train("layer_split", config, layout), config.json)


if __name__ == "__main__":
    run_as_program(Config, main)
