"""Central directions: a coordinator collects all gradients, and sends each rank its own direction.

Document 001 calls this decentralised SGD: the coordinator knows every rank's gradient, estimates the best direction and
step for each rank from all of them, and so reduces the differences between the ranks (erratum 001.8: it is
centralised). The document does not give the rule. Ours is:

    ḡ   = Σ_i (n_i / n)·g_i                         the common direction, as in synchronous SGD
    a_i = c · max(0, cos(g_i, ḡ))                   the part of its own gradient that rank i follows; c is --own-weight
    d_i = ḡ + a_i·(g_i − ḡ),   w_i ← w_i − γ·d_i

A rank whose gradient agrees with the common one follows its own as far as c allows; a rank whose gradient is orthogonal
or opposed to it receives the common direction. So each rank's step has its own direction and length, and none points
uphill: ⟨d_i, ḡ⟩ ≥ (1 − a_i)·‖ḡ‖² ≥ 0. If g_i = ḡ on all ranks, or c = 0, it is synchronous SGD.

With c > 0 only the common part of their directions keeps the copies together: they drift apart, the more their shards
differ. Their mean is evaluated.

Cost: the coordinator (rank 0) receives and sends P − 1 messages of n bytes per step, any other rank sends one. The
coordinator also holds all P gradients. The other methods of this room avoid this bottleneck.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import nn

from farandole.data.batch import Batch
from farandole.data_parallel.loss_log import Observation
from farandole.data_parallel.training import Strategy
from farandole.decentralised.exchange import average, consensus
from farandole.models.optimizers import MakeOptimizer
from farandole.runtime.buffers import FlatBuffers
from farandole.runtime.communicator import Communicator
from farandole.runtime.world import World
from farandole.tasks import Loss

CENTRE = 0


def directions(gradients: NDArray[np.floating], shares: NDArray[np.floating], own_weight: float) -> None:
    """Turn each rank's gradient into its direction, in place.

    Args:
        gradients: one a row.
        shares: n_i / n; a rank without samples is sent the common direction.
        own_weight: c.
    """
    common = (shares[:, None] * gradients).sum(axis=0, dtype=gradients.dtype)
    length = np.linalg.norm(common)
    for gradient in gradients:
        product = length * np.linalg.norm(gradient)
        agreement = max(0.0, float(gradient @ common / product)) if product else 0.0
        weight = own_weight * min(1.0, agreement)
        gradient *= weight
        gradient += (1 - weight) * common


class CentralDirections(Strategy):
    """A model whose copies each move in the direction that the coordinator sends."""

    bytes_are_counted = True

    def __init__(
        self, world: World, model: nn.Module, loss: Loss, make_optimizer: MakeOptimizer, own_weight: float
    ) -> None:
        self.world, self.model, self.loss, self.own_weight = world, model, loss, own_weight
        self.flat = FlatBuffers(model)
        self.optimizer = make_optimizer(self.flat.values, self.flat.gradients)
        length = self.flat.gradients_np.size + 1  # the share goes with its gradient
        rows = world.size if world.rank == CENTRE else 1
        self._rows = np.empty((rows, length), self.flat.gradients_np.dtype)

    def step(self, batch: Batch, share: float) -> float:
        with self.world.compute("forward and backward"):
            self.flat.zero_gradients()
            mean_loss = self.backward(batch, weight=1.0)
        with self.world.communicate("directions"):
            self.flat.to_host()
            self._rows[0, :-1], self._rows[0, -1] = self.flat.gradients_np, share
            exchange(self.world.comm, self._rows, self.own_weight)
            self.flat.gradients_np[:] = self._rows[0, :-1]
            self.flat.from_host()
        with self.world.compute("update"):
            self.optimizer.step()
        return mean_loss.item()

    def observe(self) -> Observation:
        self.flat.values_to_host()
        return consensus(self.flat.values_np, self.world.size)

    def finish(self) -> None:
        """Replace the model by the mean of all copies."""
        self.flat.values_to_host()
        average(self.world, self.flat.values_np)
        self.flat.values_from_host()


def exchange(comm: Communicator, rows: NDArray[np.floating], own_weight: float) -> None:
    """Send this rank's gradient to the coordinator, and replace it by the direction received. Collective.

    Args:
        rows: one per rank on the coordinator, one elsewhere; the first is this rank's gradient, followed by its share.
    """
    if comm.rank != CENTRE:
        comm.send(rows[0], CENTRE)
        comm.receive(rows[0, :-1], CENTRE)
        return
    others = range(1, comm.size)
    for rank in others:
        comm.receive(rows[rank], rank)
    directions(rows[:, :-1], rows[:, -1], own_weight)
    for rank in others:
        comm.send(rows[rank, :-1], rank)
