"""A search for hyper-parameters on all ranks: each trains some of the trials, and the better half goes on.

The step "tuning" of the documents' standard flow, and document 000's "different hyper-parameters on different
machines": successive halving over learning rates and widths.

    farandole run search -n 4
    farandole run search -n 4 --trials 32 --widths 32 64 128
    farandole run search -n 2 --data pydoc --model transformer --hidden 32 --trials 4 --steps 60 --lr 0.1
    mpirun -n 4 python -m farandole.scenarios.search --data mnist5k
"""

from dataclasses import dataclass

from cyclopts import Parameter

from farandole.data_parallel.options import SearchOptions
from farandole.scenarios import run_as_program


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Config(SearchOptions):
    """Options of search."""


def main(config: Config) -> None:
    from farandole.data_parallel.search import run
    from farandole.report.table import print_summary, trials

    summary, tried = run("search", config)
    print_summary(summary, config.json, trials(tried, with_width=config.task is None))


if __name__ == "__main__":
    run_as_program(Config, main)
