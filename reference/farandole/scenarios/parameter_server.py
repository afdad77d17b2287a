"""Training with a parameter server, under any synchronisation policy and update rule.

Documents 000, 001 and 004: servers keep the parameters, workers pull them, compute a gradient and
push it. --sync decides when a gradient is applied and which workers may go on. Rank 0 is the manager, the next
--servers ranks are the servers, the others are workers.

    farandole run parameter_server -n 5 --sync ssp --staleness 4 --slow rank=4,factor=4
    farandole run parameter_server -n 6 --servers 2 --sync bsp --assignment hashing
    farandole run parameter_server -n 5 --sync async --update delay-compensated
    farandole run parameter_server -n 5 --sync dssp --least-staleness 1 --staleness 8 --slow rank=4,factor=4
    farandole run parameter_server -n 5 --sync bsp --update elastic --period 8
    farandole run parameter_server -n 6 --servers 2 --replicas 2 --fail rank=1,step=50
    farandole run parameter_server -n 7 --servers 2 --server-change step=20,servers=3 --assignment hashing
    farandole run parameter_server -n 5 --sync async --stop-below 0.8
    farandole run parameter_server -n 5 --topk 0.01
    farandole run parameter_server -n 5 --compressor sign --link-mbps 100
    farandole run parameter_server -n 5 --data text --lr 30
    farandole run parameter_server -n 4 --data pydoc --model transformer
    mpirun -n 8 python -m farandole.scenarios.parameter_server --tree 3
"""

from dataclasses import dataclass

from cyclopts import Parameter

from farandole.parameter_server.sparse_options import TextOptions
from farandole.scenarios import run_as_program


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Config(TextOptions):
    """Options of parameter_server."""


def main(config: Config) -> None:
    from functools import partial

    from farandole.parameter_server.choices import check_workload
    from farandole.parameter_server.classification import dense
    from farandole.parameter_server.double_aggregation import TwiceTrainee
    from farandole.parameter_server.sparse import SparseTrainee
    from farandole.parameter_server.training import train
    from farandole.report.table import print_summary

    check_workload(config)
    whole = partial(dense, trainee=TwiceTrainee) if config.update == "twice" else dense
    workload = partial(SparseTrainee if config.data == "text" else whole, config)
    print_summary(train("parameter_server", config, workload), config.json)


if __name__ == "__main__":
    run_as_program(Config, main)
