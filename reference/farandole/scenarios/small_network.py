"""Document 003's example: a 10-20-1 network on 1,000 samples, data parallel and then model parallel.

It does what the document's text says, which its listing does not (errata 003.8 to 003.10): every
rank its share of each batch of 10, with the mean gradient, for 10 epochs; then fc1 on one rank and
fc2 on another, with activations and gradients between them, for 10 more. Whatever the number of
ranks, it learns what one process learns.

    farandole run small_network -n 2
    farandole run small_network -n 4 --epochs 3
    mpirun -n 2 python -m farandole.scenarios.small_network
"""

from dataclasses import dataclass

from cyclopts import Parameter

from farandole.runtime.numbers import AtLeastOne
from farandole.runtime.options import RunOptions
from farandole.scenarios import run_as_program


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Config(RunOptions):
    """Options of small_network."""

    epochs: AtLeastOne = 10
    """Passes over the 1,000 samples in each of the two modes."""

    def steps_at_most(self, ranks: int) -> int | None:
        return 2 * self.epochs * 100  # batches of 10


def main(config: Config) -> None:
    from farandole.model_parallel.small_network import train
    from farandole.report.table import print_summary

    print_summary(train(config, config.epochs), config.json)


if __name__ == "__main__":
    run_as_program(Config, main)
