"""Dynamic synchronisation: how often ranks combine, and how many steps each takes, by measured times.

Document 002's dynamic scheduling: when the network or a rank changes speed, the next rounds are planned accordingly.

    farandole run dynamic_sync -n 4 --slow rank=3,factor=4,until=150 --slow rank=1,factor=4,from=150
    farandole run dynamic_sync -n 4 --link-mbps 4 --link-change step=150,mbps=1000 --concentration 0.1
    farandole run dynamic_sync -n 4 --link-mbps 4 --link-change step=150,mbps=1000 --concentration 0.1 --period 8
    mpirun -n 4 python -m farandole.scenarios.dynamic_sync --data mnist5k --kappa 2
"""

from dataclasses import dataclass

from cyclopts import Parameter

from farandole.data_parallel.options import DynamicOptions
from farandole.scenarios import run_as_program


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Config(DynamicOptions):
    """Options of dynamic_sync."""


def main(config: Config) -> None:
    from farandole.data_parallel.dynamic_sync import train
    from farandole.report.table import print_summary

    print_summary(train("dynamic_sync", config), config.json)


if __name__ == "__main__":
    run_as_program(Config, main)
