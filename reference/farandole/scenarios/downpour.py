"""Downpour SGD: replicas of the model fetch and push every few iterations, and never wait for each other.

Document 001's DistBelief, together with a parameter server: each worker has a replica of the model
and its own samples, fetches the parameters every --n-fetch iterations and pushes its summed
gradients every --n-push, while it goes on computing; the servers apply them with Adagrad.
--label-sets gives each replica some of the classes, with its own numbering, and the manager aligns them. With --tasks
the manager assigns computing tasks to the workers. Rank 0 is the manager, the next --servers ranks are the servers, and
the other ranks are workers.

    farandole run downpour -n 6 --servers 2 --slow rank=5,factor=4
    farandole run downpour -n 3 --n-fetch 1 --n-push 1 --no-overlap
    farandole run downpour -n 5 --tasks --slow rank=4,factor=4 --fail rank=3,step=20
    farandole run downpour -n 5 --label-sets 6
    farandole run downpour -n 5 --label-sets 6 --no-align
"""

from dataclasses import dataclass

from cyclopts import Parameter

from farandole.parameter_server.downpour_options import DownpourOptions
from farandole.scenarios import run_as_program


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Config(DownpourOptions):
    """Options of downpour."""


def main(config: Config) -> None:
    from farandole.parameter_server.replicas import train
    from farandole.report.table import print_summary

    print_summary(train("downpour", config), config.json)


if __name__ == "__main__":
    run_as_program(Config, main)
