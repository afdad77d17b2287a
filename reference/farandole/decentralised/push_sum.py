"""Push-sum, or stochastic gradient push (SGP): mixing along directed edges.

If edges are directed, or change from step to step, simple weights cannot keep the mean: a rank with many outgoing edges
would count for more. Push-sum records by how much. Every rank has a vector x and a number w, at first 1. One
step:

    x_i ← x_i − γ·∇f_i(z_i)                                 z_i = x_i / w_i, the model
    (x_i, w_i) ← Σ_j p_ij·(x_j, w_j)                        p_ij = 1 / (1 + out-degree of j)
    z_i ← x_i / w_i

Each sender alone decides on the parts, so every column of p sums to 1: Σx moves only by gradients, and Σw = P. A rank
whose part of Σx is too large has too large a part of Σw by the same factor: z has no bias. Where p is doubly stochastic
w stays 1, and this is D-PSGD that mixes after the update.

Cost: out-degree messages of n bytes and one number a rank and step; with the one-peer exponential graph a single
message. A rank need not know its neighbours' degrees. Source: Assran et al., "Stochastic gradient push for
distributed deep learning", 2019; Kempe et al. 2003 (push-sum).
"""

from __future__ import annotations

import numpy as np
from torch import nn

from farandole.data.batch import Batch
from farandole.data_parallel.loss_log import Observation
from farandole.data_parallel.training import Strategy
from farandole.decentralised.exchange import Mixer, average, consensus
from farandole.decentralised.mixing import pushing
from farandole.decentralised.topologies import Topology
from farandole.models.optimizers import MakeOptimizer
from farandole.runtime.buffers import FlatBuffers
from farandole.runtime.world import World
from farandole.tasks import Loss


class PushSum(Strategy):
    """A model z = x/w; parts of x and w are sent along the graph's edges.

    Args:
        every: steps from one mixing to the next.

    Attributes:
        pushed: x, followed by w.
    """

    bytes_are_counted = True

    def __init__(
        self, world: World, model: nn.Module, loss: Loss, make_optimizer: MakeOptimizer, graph: Topology, every: int = 1
    ) -> None:
        self.world, self.model, self.loss, self.every = world, model, loss, every
        self.flat = FlatBuffers(model)
        self.optimizer = make_optimizer(self.flat.values, self.flat.gradients)
        self.flat.values_to_host()
        self.pushed = np.append(self.flat.values_np, self.flat.values_np.dtype.type(1))
        self.mixer = Mixer(world, graph, pushing, self.pushed)
        self._done = 0

    def step(self, batch: Batch, share: float) -> float:
        with self.world.compute("forward and backward"):
            self.flat.zero_gradients()
            mean_loss = self.backward(batch, share * self.world.size)
        with self.world.compute("update"):  # of x, by a gradient that was computed at z
            self._have(self.pushed[:-1])
            self.optimizer.step()
            self.flat.values_to_host()
            self.pushed[:-1] = self.flat.values_np
        self._done += 1
        if self._done % self.every == 0:
            self.mixer.mix(self.pushed)
        with self.world.compute("divide by the weight"):
            self._have(self.pushed[:-1] / self.pushed[-1])
        return mean_loss.item()

    def observe(self) -> Observation:
        return consensus(self.pushed[:-1] / self.pushed[-1], self.world.size)

    def finish(self) -> None:
        """Replace the model by the mean of all x; the mean of all w is 1."""
        total = self.pushed[:-1].copy()
        average(self.world, total)
        self._have(total)

    def _have(self, vector: np.ndarray) -> None:
        """Copy `vector` to the model's parameters."""
        self.flat.values_np[:] = vector
        self.flat.values_from_host()
