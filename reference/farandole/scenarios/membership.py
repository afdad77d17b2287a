"""Membership update: a rank is killed during training, and the others go on without it, or with a spare in its place.

Document 000, 成员更新: the remaining ranks agree on a new membership, and elect another coordinator if it has died.

    farandole run membership -n 4 --fail rank=2,step=60
    farandole run membership -n 5 --spares 1 --fail rank=0,step=60
    farandole run membership -n 7 --spares 2 --fail rank=1,step=20 --fail rank=3,step=50 --fail rank=0,step=80
    farandole run membership -n 4 --spawn 1 --steps 5000 --fail rank=2,step=60        a new process takes the place
    mpirun --with-ft ulfm -n 4 python -m farandole.scenarios.membership --fail rank=2,step=60
"""

from dataclasses import dataclass

from cyclopts import Parameter

from farandole.recovery.options import MembershipOptions
from farandole.scenarios import run_as_program


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Config(MembershipOptions):
    """Options of membership."""


def main(config: Config) -> None:
    from farandole.recovery.membership_protection import train
    from farandole.report.table import print_summary

    print_summary(train("membership", config), config.json)


if __name__ == "__main__":
    run_as_program(Config, main)
