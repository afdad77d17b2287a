"""Elastic Horovod, to compare with membership and backup: workers commit, die, and go on from the last commit.

The same data, batches, model and record; Horovod's driver starts the workers, detects failed ones, and
starts others (`--cooldown`) or goes on with fewer. Horovod's messages are not counted, so the record's
byte counts are null.

    farandole run elastic_horovod -n 4 --fail rank=2,step=60
    farandole run elastic_horovod -n 4 --fail rank=2,step=60 --cooldown 1 --steps 2000
    python -m farandole.scenarios.elastic_horovod --workers 4 --hosts-file hosts.txt
"""

import os
from dataclasses import dataclass

from cyclopts import Parameter

from farandole.errors import UsageError
from farandole.recovery.options import ElasticHorovodOptions
from farandole.scenarios import run_as_program


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Config(ElasticHorovodOptions):
    """Options of elastic_horovod."""


def main(config: Config) -> None:
    try:
        import horovod  # noqa: F401
    except ImportError as error:
        raise UsageError("Horovod is not installed: make setup builds it (a C++ compiler is needed)") from error
    if "HOROVOD_ELASTIC" in os.environ:  # Horovod's driver has started this process
        from farandole.recovery.elastic_horovod import work

        work(config)
        return
    from farandole.recovery.horovod_driver import drive
    from farandole.report.table import print_summary

    print_summary(drive("elastic_horovod", config), config.json)


if __name__ == "__main__":
    run_as_program(Config, main)
