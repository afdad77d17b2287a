"""D-PSGD around a loop of the user's own: after its own step every rank averages with its neighbours.

    x_i ← Σ_j W_ij·(x_j − γ·g_j)        the second order of `decentralised.dpsgd`, --mix-after-update

The steps are those of any optimizer of torch. Its gradients are weighted by the size of this rank's part, so that their
mean over the ranks is the gradient of the whole batch. What the optimizer remembers stays with its rank.

Cost: degree messages of the parameters' size a rank, and two passes to collect them and to hand them out.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from cyclopts import Parameter

from farandole.data_parallel.loss_log import Observation
from farandole.decentralised.exchange import Mixer, average, consensus
from farandole.decentralised.graph_file import read_or_build
from farandole.decentralised.mixing import doubly_stochastic
from farandole.decentralised.options import USUAL_TOPOLOGY, TopologyName, check_graph
from farandole.own_loop.apart import Apart
from farandole.runtime.numbers import AtLeastOne
from farandole.runtime.options import RunOptions
from farandole.runtime.world import World


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class NeighbourOptions(RunOptions):
    """The graph of neighbours, and how often they average."""

    topology: TopologyName = USUAL_TOPOLOGY
    """The graph of neighbours."""

    graph: Path | None = None
    """File with a graph to use instead, one line per edge: 0 1 is undirected, 0 > 1 is directed."""

    mixing_every: AtLeastOne = 1
    """Steps from one average to the next; between them each rank trains alone."""


class Gossip(Apart):
    """Ranks that average with their neighbours."""

    name = "dpsgd"
    Options = NeighbourOptions

    def __init__(self, world: World, options: NeighbourOptions) -> None:
        super().__init__(world, options)
        check_graph(options.topology, options.graph)
        self._graph = read_or_build(options.graph, options.topology, world.size)
        self._mixer: Mixer | None = None

    def optimizer(self, inner: torch.optim.Optimizer, **settings: Any) -> torch.optim.Optimizer:
        """Return `inner`, whose gradients are weighted before each step."""
        super().optimizer(inner, **settings)
        inner.register_step_pre_hook(self._weigh_gradients)
        return inner

    def after(self, step: int) -> None:
        """Average with the neighbours, if it is time to."""
        if (step + 1) % self.options.mixing_every or not self.parameters:
            return
        own = self.collected()
        if self._mixer is None:
            self._mixer = Mixer(self.world, self._graph, doubly_stochastic, own.numpy())
        self._mixer.mix(own.numpy())
        self.hand_out(own)

    def observe(self) -> Observation | None:
        """Return what finds how far the copies are apart."""
        return consensus(self.collected().numpy(), self.world.size) if self.parameters else None

    def finish(self, following: int) -> dict[str, Any]:
        """Replace the model by the mean of all copies."""
        found = self.written(following)
        if self.parameters:
            own = self.collected()
            average(self.world, own.numpy())
            self.hand_out(own)
        return found

    def _weigh_gradients(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        factor = self.share * self.world.size
        if factor != 1:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        parameter.grad.mul_(factor)
