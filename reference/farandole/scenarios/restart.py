"""Restart recovery: checkpoints while training, and a start that goes on from the last one.

Document 000, 重启恢复: when a node drops out, training recovers from the last checkpoint and is started
again. Start the same command with the same --out again, by hand or by `farandole supervise`:

    farandole supervise -- run restart -n 4 --fail rank=2,step=130
    farandole run restart -n 4 --out runs/mine --fail rank=2,step=130
    farandole run restart -n 3 --out runs/mine
    mpirun -n 4 python -m farandole.scenarios.restart --out runs/mine --mtbf 60
"""

from dataclasses import dataclass

from cyclopts import Parameter

from farandole.recovery.options import ResumableOptions
from farandole.scenarios import run_as_program


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Config(ResumableOptions):
    """Options of restart."""


def main(config: Config) -> None:
    from farandole.recovery.restart import train
    from farandole.report.table import print_summary

    print_summary(train("restart", config), config.json)


if __name__ == "__main__":
    run_as_program(Config, main)
