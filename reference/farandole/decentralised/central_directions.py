"""Directions from a centre: it collects all gradients, and hands each rank a direction of its own.

What document 001 calls decentralised SGD: the centre knows every rank's gradient, estimates from all of them the best
direction and step for each rank, and so evens out the differences between them (erratum 001.8: it is centralised).
The text leaves open by which rule. This one is ours:

    ḡ   = Σ_i (n_i / n)·g_i                         the common direction, as in synchronous SGD
    a_i = c · max(0, cos(g_i, ḡ))                   how much of its own rank i is left with; c is --own-weight
    d_i = ḡ + a_i·(g_i − ḡ),   w_i ← w_i − γ·d_i

A rank whose gradient agrees with the others' goes its own way as far as c allows; one whose gradient is at right angles
to the common one, or against it, is sent the common way. So each rank's step has its own direction and length, and none
leads uphill: ⟨d_i, ḡ⟩ ≥ (1 − a_i)·‖ḡ‖² ≥ 0. Where g_i = ḡ on all ranks, and where c = 0, it is synchronous SGD.

With c > 0 nothing pulls the copies together but that their directions have a part in common: they drift, the further
the more their shards differ. What is evaluated is their mean.

Cost: the centre (rank 0) receives and sends P − 1 messages of n bytes a step, any other rank sends one; the centre also
holds all P gradients. That is the bottleneck that the other methods of this room do without.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

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
        shares: n_i / n; a rank that had no samples is sent the common way.
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
    """A model that moves as the centre says, each copy in a direction of its own."""

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

    def step(self, inputs: Tensor, targets: Tensor, share: float) -> float:
        with self.world.compute("forward and backward"):
            self.flat.zero_gradients()
            mean_loss = self.loss(self.model(inputs), targets)
            mean_loss.backward()
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
        """The mean of all copies is what was trained."""
        self.flat.values_to_host()
        average(self.world, self.flat.values_np)
        self.flat.values_from_host()


def exchange(comm: Communicator, rows: NDArray[np.floating], own_weight: float) -> None:
    """Send the own gradient to the centre, and have a direction in its place. Collective.

    Args:
        rows: on the centre one for each rank, elsewhere one: the own gradient, and its share behind it, come first.
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
