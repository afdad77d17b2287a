"""Decentralised SGD: every rank averages with its neighbours in a graph, and there is no centre.

D-PSGD, push-sum and AD-PSGD, and what document 001 describes under this name, which has a centre: the same data,
shares, model and record as sync_sgd. What is evaluated is the mean of all copies; how far they were apart stands in the
metrics.

    farandole run gossip_sgd -n 4
    farandole run gossip_sgd -n 4 --topology torus --mixing-every 4
    farandole run gossip_sgd -n 4 --method push-sum --topology one-peer-exponential
    farandole run gossip_sgd -n 4 --method ad-psgd --slow rank=3,factor=3
    farandole run gossip_sgd -n 4 --method central-directions --own-weight 0.5
    farandole run gossip_sgd -n 4 --compressor top-k --fraction 0.05
    mpirun -n 4 python -m farandole.scenarios.gossip_sgd --graph my_graph.txt
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from farandole.compression.options import EncodingOptions, check_meaning, error_below_one
from farandole.compression.table import FOR_NEIGHBOURS
from farandole.data_parallel.options import OptimizerOptions
from farandole.decentralised.options import TopologyName
from farandole.errors import UsageError
from farandole.runtime.choices import one_of
from farandole.runtime.numbers import AtLeastOne, Part, UnitInterval
from farandole.scenarios import run_as_program

if TYPE_CHECKING:
    Encoder = str
else:
    Encoder = one_of(FOR_NEIGHBOURS)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Config(EncodingOptions, OptimizerOptions):
    """Options of gossip_sgd."""

    method: Literal["d-psgd", "push-sum", "ad-psgd", "central-directions"] = "d-psgd"
    """With all neighbours in step; along edges that lead one way; in pairs, whenever one is ready; as a centre says."""

    topology: TopologyName = "ring"
    """Who is whose neighbour; ad-psgd takes the edges both ways, whatever the round."""

    graph: Path | None = None
    """A file with a graph instead: a line for each edge, 0 1 for one that leads both ways, 0 > 1 for one way."""

    mixing_every: AtLeastOne = 1
    """Steps from one mixing to the next; those between are each rank's own."""

    mix_after_update: Annotated[bool, Parameter(negative="")] = False
    """Of d-psgd: mix what the update has led to, instead of what it begins from; push-sum always does."""

    own_weight: UnitInterval = 0.5
    """Of central-directions: how much of its own gradient a rank follows, where it agrees with the mean."""

    compressor: Encoder = "none"
    """Of d-psgd: what encodes the differences that neighbours send each other (CHOCO-SGD, which mixes after the
    update); none: parameters are sent as they are."""

    consensus_step: Part | None = None
    """With --compressor: how far a rank moves to its neighbours in a round; the more is lost, the less. [default: 0.3;
    but no more than 6 times --fraction with top-k, half of it with random-k]"""

    def steps_at_most(self, ranks: int) -> int | None:
        return self.steps * ranks if self.method == "ad-psgd" else self.steps  # a fast rank takes a slow one's

    @property
    def moves_by(self) -> float:
        """The consensus step given, or the usual one: with a longer one, where so much is lost, the copies part."""
        at_most = {"top-k": 6 * self.fraction, "random-k": self.fraction / 2}
        return self.consensus_step or min(0.3, at_most.get(self.compressor, 0.3))


def check(config: Config) -> None:
    """Refuse options that say nothing to the method or the compressor chosen.

    Raises:
        UsageError: there is one.
    """
    default = Config()
    with_graph = ("d-psgd", "push-sum", "ad-psgd")
    only: dict[str, tuple[str, ...]] = dict.fromkeys(("topology", "graph", "mixing_every"), with_graph)
    only |= {"mix_after_update": ("d-psgd",), "own_weight": ("central-directions",), "compressor": ("d-psgd",)}
    for name, methods in only.items():
        if config.method not in methods and getattr(config, name) != getattr(default, name):
            option = "--" + name.replace("_", "-")
            raise UsageError(f"{option} is for --method {' or '.join(methods)}, not for {config.method}: leave it out")
    check_meaning(config, config.compressor, FOR_NEIGHBOURS)
    if config.compressor == "none" and config.consensus_step is not None:
        raise UsageError("--consensus-step is for --compressor: leave it out, or add that")
    if config.compressor != "none" and config.mix_after_update:
        raise UsageError("--compressor mixes after the update in any case: leave out --mix-after-update")
    if config.compressor == "qsgd" and not error_below_one(config.levels, config.bucket):
        raise UsageError(
            f"with --levels {config.levels} and --bucket {config.bucket} qsgd may lose more than it is given, and the "
            "copies would part: give more levels than the root of the bucket"
        )
    if config.graph and config.topology != default.topology:
        raise UsageError("--graph takes the place of --topology: give one of them")
    if config.method == "push-sum" and config.graph and config.optimizer in ("lars", "lars-normalised", "lamb"):
        raise UsageError(
            f"--optimizer {config.optimizer} goes by how long the parameters are, and with push-sum on a --graph these "
            "are w times too long: choose another optimizer"
        )
    if config.method == "ad-psgd" and config.lr_schedule == "plateau":
        raise UsageError(
            "--lr-schedule plateau goes without --method ad-psgd: all ranks must know the loss at the same step"
        )


def main(config: Config) -> None:
    check(config)

    import numpy as np
    from torch import nn

    from farandole.compression.choices import plain
    from farandole.data_parallel.learning_rate import LearningRate
    from farandole.data_parallel.training import Strategy, in_step, train
    from farandole.decentralised import graph_file, topologies
    from farandole.decentralised.ad_psgd import ADPSGD
    from farandole.decentralised.asynchronous import whoever_is_ready
    from farandole.decentralised.central_directions import CentralDirections
    from farandole.decentralised.choco import ChocoSGD
    from farandole.decentralised.dpsgd import DPSGD
    from farandole.decentralised.push_sum import PushSum
    from farandole.models.layerwise import maker_for
    from farandole.report.table import print_summary
    from farandole.runtime.world import World
    from farandole.tasks import Loss

    def strategy(world: World, model: nn.Module, loss: Loss) -> Strategy:
        make = maker_for(model, config.optimizer, config.lr, config.l2, config.weight_decay)
        if config.method == "central-directions":
            return CentralDirections(world, model, loss, make, config.own_weight)
        if config.graph:
            graph = graph_file.read(config.graph, world.size)
        else:
            graph = topologies.topology(config.topology, world.size)
        if config.method == "push-sum":
            return PushSum(world, model, loss, make, graph, config.mixing_every)
        if config.method == "ad-psgd":
            return ADPSGD(world, model, loss, make, graph, config.mixing_every, config.seed)
        if config.compressor != "none":
            common, own = np.random.default_rng([config.seed, 0]), np.random.default_rng([config.seed, 1 + world.rank])
            compressor = plain(config.compressor, config, common, own, unbiased=False)
            return ChocoSGD(world, model, loss, make, graph, compressor, config.moves_by, config.mixing_every)
        return DPSGD(world, model, loss, make, graph, config.mixing_every, config.mix_after_update)

    loop = whoever_is_ready if config.method == "ad-psgd" else in_step
    print_summary(train("gossip_sgd", config, strategy, LearningRate.of(config), loop), config.json)


if __name__ == "__main__":
    run_as_program(Config, main)
