"""Hot and shared parameters on the servers, all others with the one worker that updates them.

Document 000's hybrid parallel training: the parameters' update frequencies are measured first, then
hot and shared ones go to the centre and the rest to the clients. The result is that of keeping all
on the servers (--hot 0), with less to send: the rarer the words and the more alike a worker's
documents, the less.

    farandole run hybrid_parameters -n 4
    farandole run hybrid_parameters -n 4 --hot 0
    farandole run hybrid_parameters -n 4 --hot 0.1 --cold clients
    farandole run hybrid_parameters -n 4 --shards shuffled
    mpirun -n 6 python -m farandole.scenarios.hybrid_parameters --servers 2 --sync ssp --update adagrad --lr 1
"""

from dataclasses import dataclass

from cyclopts import Parameter

from farandole.parameter_server.sparse_options import HybridOptions
from farandole.scenarios import run_as_program


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Config(HybridOptions):
    """Options of hybrid_parameters."""


def main(config: Config) -> None:
    from functools import partial

    from farandole.parameter_server.hybrid import HybridTrainee
    from farandole.parameter_server.training import train
    from farandole.report.table import print_summary

    print_summary(train("hybrid_parameters", config, partial(HybridTrainee, config)), config.json)


if __name__ == "__main__":
    run_as_program(Config, main)
