"""Adaptive parallelism: choose the parallel mode from the measured speed, link and memory of the ranks.

Data, pipeline and tensor parallelism and their grids are predicted from the measurements, and the fastest mode that
fits the memory trains. This is document 003's adaptive strategy.

    farandole run adaptive -n 4
    farandole run adaptive -n 4 --data pydoc --model transformer --hidden 64 --depth 4 --link-mbps 50
    farandole run adaptive -n 4 --hidden 2048 --depth 6 --memory-mb 60
    mpirun -n 4 python -m farandole.scenarios.adaptive --flops 2e9
"""

from dataclasses import dataclass

from cyclopts import Parameter

from farandole.model_parallel.options import AdaptiveOptions
from farandole.scenarios import run_as_program


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Config(AdaptiveOptions):
    """Options of adaptive."""


def main(config: Config) -> None:
    from farandole.cost.adaptive import train
    from farandole.report import modes_table
    from farandole.report.table import print_summary

    summary, modes, devices = train(config)
    print_summary(summary, config.json, modes_table.modes(modes, devices))


if __name__ == "__main__":
    run_as_program(Config, main)
