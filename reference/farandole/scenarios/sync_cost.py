"""The cost of synchronising, C = T_comm + T_comp: eight methods, predicted from α, β and computing times, and measured.

Document 002 from beginning to end. The network and the ranks are measured first, each method is predicted from these
figures alone, and then trains. A table shows communication, computing with its waiting, steps to a loss, and the speed
that is left with more workers.

    farandole run sync_cost -n 4
    farandole run sync_cost -n 4 --link-mbps 100 --slow rank=3,factor=3
    farandole run sync_cost -n 4 --link-mbps 20 --methods ring float16 top-k --fraction 0.001
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
