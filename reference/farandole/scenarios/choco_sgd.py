"""CHOCO-SGD: decentralised SGD with compressed messages, which still comes to the mean.

The same data, shares, model and record as sync_sgd. Neighbours send each other encoded differences to what they know of
each other, and average after the update. What is evaluated is the mean of all copies.

    farandole run choco_sgd -n 4 --compressor top-k --fraction 0.05
    farandole run choco_sgd -n 4 --compressor sign --consensus-step 0.1
    mpirun -n 4 python -m farandole.scenarios.choco_sgd --compressor qsgd --levels 32 --topology torus
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from cyclopts import Parameter

from farandole.compression.options import EncodingOptions, check_meaning, error_below_one
from farandole.compression.table import FOR_NEIGHBOURS
from farandole.decentralised.options import GossipOptions, check_graph
from farandole.errors import UsageError
from farandole.runtime.choices import one_of
from farandole.runtime.numbers import Part
from farandole.scenarios import run_as_program

if TYPE_CHECKING:
    Encoder = str
else:
    Encoder = one_of(FOR_NEIGHBOURS)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Config(EncodingOptions, GossipOptions):
    """Options of choco_sgd."""

    compressor: Encoder = "top-k"
    """The encoding of the differences; none: they are sent as they are."""

    consensus_step: Part | None = None
    """How far a rank moves to its neighbours in a round; the larger the error, the less. [default: 0.3; but at most 6
    times --fraction with top-k, half of it with random-k]"""

    @property
    def moves_by(self) -> float:
        """The consensus step given, or the default: with a longer one and so large an error the copies diverge."""
        at_most = {"top-k": 6 * self.fraction, "random-k": self.fraction / 2}
        return self.consensus_step or min(0.3, at_most.get(self.compressor, 0.3))


def check(config: Config) -> None:
    """Refuse options that do not go together.

    Raises:
        UsageError: two graphs, an option of another compressor, or a compressor that loses too much.
    """
    check_graph(config.topology, config.graph)
    check_meaning(config, config.compressor, FOR_NEIGHBOURS)
    if config.compressor == "qsgd" and not error_below_one(config.levels, config.bucket):
        raise UsageError(
            f"with --levels {config.levels} and --bucket {config.bucket} qsgd's error may exceed the vector, and "
            "the copies would diverge: give more levels than the root of the bucket"
        )


def main(config: Config) -> None:
    check(config)

    import numpy as np
    from torch import nn

    from farandole.compression.choices import plain
    from farandole.data_parallel.training import optimizer_factory, train
    from farandole.decentralised.choco import ChocoSGD
    from farandole.decentralised.graph_file import read_or_build
    from farandole.report.table import print_summary
    from farandole.runtime.world import World
    from farandole.tasks import Loss

    def strategy(world: World, model: nn.Module, loss: Loss) -> ChocoSGD:
        graph = read_or_build(config.graph, config.topology, world.size)
        common, own = np.random.default_rng([config.seed, 0]), np.random.default_rng([config.seed, 1 + world.rank])
        compressor = plain(config.compressor, config, common, own, unbiased=False)
        make = optimizer_factory(config, model)
        return ChocoSGD(world, model, loss, make, graph, compressor, config.moves_by, config.mixing_every)

    print_summary(train("choco_sgd", config, strategy), config.json)


if __name__ == "__main__":
    run_as_program(Config, main)
