"""The cost of synchronising: C = T_comm + T_comp of eight ways, predicted from α, β and computing times, then measured.

Document 002 from its one end to the other: what the network and the ranks do is measured first, each way is predicted
from that alone, and then trains. On a table: communication, computing with its waiting, steps to a loss, and what more
workers would leave of the speed.

    farandole run sync_cost -n 4
    farandole run sync_cost -n 4 --link-mbps 100 --slow rank=3,factor=3
    farandole run sync_cost -n 4 --link-mbps 20 --ways ring float16 top-k --fraction 0.001
    mpirun -n 4 python -m farandole.scenarios.sync_cost --data mnist5k --model cnn --lr 0.1
"""

from dataclasses import dataclass

from cyclopts import Parameter

from farandole.cost.options import SyncCostOptions
from farandole.scenarios import run_as_program


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Config(SyncCostOptions):
    """Options of sync_cost."""


def main(config: Config) -> None:
    from farandole.cost.options import check
    from farandole.cost.sync_cost import run
    from farandole.report.sync_cost_table import costs, scaling
    from farandole.report.table import print_summary

    check(config)
    summary, findings = run("sync_cost", config)
    print_summary(summary, config.json, costs(findings, config.goal), scaling(findings))


if __name__ == "__main__":
    run_as_program(Config, main)
