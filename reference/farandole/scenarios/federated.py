"""Federated averaging: clients train on their own data, and a server averages the results of a few in each round.

Document 002's outlook: many clients of which few take part in a round, data that differ from client to client, and with
--secure a server that sees only sums.

    farandole run federated -n 4
    farandole run federated -n 4 --clients 100 --per-round 10 --concentration 0.1 --epochs 5
    farandole run federated -n 4 --secure --lost 0.2
    mpirun -n 4 python -m farandole.scenarios.federated --data mnist5k --clients 200 --per-round 20
"""

from dataclasses import dataclass

from cyclopts import Parameter

from farandole.federated.options import FederatedOptions
from farandole.scenarios import run_as_program


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Config(FederatedOptions):
    """Options of federated."""


def main(config: Config) -> None:
    from farandole.federated.training import train
    from farandole.report.table import print_summary

    print_summary(train("federated", config), config.json)


if __name__ == "__main__":
    run_as_program(Config, main)
