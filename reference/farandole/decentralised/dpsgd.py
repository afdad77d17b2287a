"""D-PSGD: every rank averages its parameters with those of its neighbours, and takes its own step.

One step of rank i, with the weights W of `mixing`:

    x_i ← Σ_j W_ij·x_j − γ·g_i                     g_i = ∇f_i(x_i), at x_i as it was before the mixing
    x_i ← Σ_j W_ij·(x_j − γ·g_j)                   after the update, with --mix-after-update

In the first order, the paper's, the mixing needs no gradient and may overlap the backward pass; here it comes after it,
so that the times of both can be seen. In either order the mean moves as x̄ ← x̄ − γ·(1/P)·Σ_i g_i: as in synchronous
SGD, except that each gradient was computed at another x_i. With equal parts of the batch f_i is the mean loss of rank
i's part; otherwise it is that times P·n_i/n, so that the mean step is that of the whole batch.

    W = 11ᵀ/P, after the update     synchronous SGD, to rounding: all copies are the mean again
    W = 11ᵀ/P, the first order      not synchronous SGD: each copy is still its own last gradient away from the mean

Cost: degree messages of n bytes a rank and step, whatever the number of ranks; a rank waits for its neighbours only.
How far the copies drift apart depends on γ, on how much the shards differ, and on the spectral gap. Document 001's
"decentralised SGD" has a centre: `central_directions` (erratum 001.8). Source: Lian et al., "Can decentralized
algorithms outperform centralized algorithms? A case study for decentralized parallel stochastic gradient descent",
2017.
"""

from __future__ import annotations

from torch import nn

from farandole.data.batch import Batch
from farandole.data_parallel.loss_log import Observation
from farandole.data_parallel.training import Strategy
from farandole.decentralised.exchange import Mixer, average, consensus
from farandole.decentralised.mixing import doubly_stochastic
from farandole.decentralised.topologies import Topology
from farandole.models.optimizers import MakeOptimizer
from farandole.runtime.buffers import FlatBuffers
from farandole.runtime.world import World
from farandole.tasks import Loss


class DPSGD(Strategy):
    """A model that is trained beside its copies on other ranks, and mixed with the neighbours' copies.

    Args:
        graph: which ranks are neighbours.
        every: steps from one mixing to the next; between them each rank trains alone.
        after_update: mix the parameters after the update, instead of before it.
    """

    bytes_are_counted = True

    def __init__(
        self,
        world: World,
        model: nn.Module,
        loss: Loss,
        make_optimizer: MakeOptimizer,
        graph: Topology,
        every: int = 1,
        after_update: bool = False,
    ) -> None:
        self.world, self.model, self.loss = world, model, loss
        self.every, self.after_update = every, after_update
        self.flat = FlatBuffers(model)
        self.optimizer = make_optimizer(self.flat.values, self.flat.gradients)
        self.mixer = Mixer(world, graph, doubly_stochastic, self.flat.values_np)
        self._done = 0

    def step(self, batch: Batch, share: float) -> float:
        with self.world.compute("forward and backward"):
            self.flat.zero_gradients()
            mean_loss = self.backward(batch, share * self.world.size)
        self._done += 1
        mixes = self._done % self.every == 0
        if mixes and not self.after_update:
            self._mix()
        with self.world.compute("update"):
            self.optimizer.step()
        if mixes and self.after_update:
            self._mix()
        return mean_loss.item()

    def observe(self) -> Observation:
        self.flat.values_to_host()
        return consensus(self.flat.values_np, self.world.size)

    def finish(self) -> None:
        """Replace the model by the mean of all copies."""
        self.flat.values_to_host()
        average(self.world, self.flat.values_np)
        self.flat.values_from_host()

    def _mix(self) -> None:
        self.flat.values_to_host()
        self.mixer.mix(self.flat.values_np)
        self.flat.values_from_host()
