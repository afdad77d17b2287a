"""DiLoCo whose ranks may die: the others take the outer step without it, and a new process may take its place.

Documents 000 and 004 together: rarer synchronisation, and a membership that changes. A death is noticed at
the next outer step.

    farandole run elastic_diloco -n 4 --fail rank=2,step=60
    farandole run elastic_diloco -n 5 --spares 1 --period 10 --fail rank=1,step=33
    farandole run elastic_diloco -n 4 --spawn 1 --steps 5000 --fail rank=2,step=60        a new process takes the place
    mpirun --with-ft ulfm -n 4 python -m farandole.scenarios.elastic_diloco --fail rank=2,step=60
"""

from dataclasses import dataclass
from typing import Literal

from cyclopts import Parameter

from farandole.recovery.options import ElasticDiLoCoOptions
from farandole.runtime.numbers import Positive
from farandole.scenarios import run_as_program


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Config(ElasticDiLoCoOptions):
    """Options of elastic_diloco."""

    optimizer: Literal["sgd", "momentum", "adam"] = "adam"
    """The inner optimizer, of each worker's own steps."""

    lr: Positive = 0.002
    """Learning rate of the inner optimizer."""


def main(config: Config) -> None:
    from farandole.recovery.elastic_diloco import train
    from farandole.report.table import print_summary

    print_summary(train("elastic_diloco", config), config.json)


if __name__ == "__main__":
    run_as_program(Config, main)
