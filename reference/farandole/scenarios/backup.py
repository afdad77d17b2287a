"""Backup recovery: every worker's state is in a buddy's memory, and a spare replaces a worker that dies.

Document 000, 备份恢复: parameters and intermediate results are kept on several nodes, and recovered from there.

    farandole run backup -n 5 --spares 1 --fail rank=2,step=63
    farandole run backup -n 5 --spares 1 --fail rank=2,step=63 --optimizer adam --lr 0.002 --shard-optimizer
    farandole run backup -n 4 --fail rank=1,step=63 --fail rank=2,step=63
    farandole run backup -n 4 --spawn 1 --steps 5000 --fail rank=2,step=63            a new process takes the place
    mpirun --with-ft ulfm -n 5 python -m farandole.scenarios.backup --spares 1 --fail rank=2,step=63
"""

from dataclasses import dataclass

from cyclopts import Parameter

from farandole.recovery.options import BackupOptions
from farandole.scenarios import run_as_program


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Config(BackupOptions):
    """Options of backup."""


def main(config: Config) -> None:
    from farandole.recovery.backup import train
    from farandole.report.table import print_summary

    print_summary(train("backup", config), config.json)


if __name__ == "__main__":
    run_as_program(Config, main)
