"""Synchronous SGD: every rank computes a gradient, the mean of all moves every copy of the model.

One step (document 002, its steps 2 to 4):

    g_r = ∇ mean loss of rank r's part of the batch
    g   = Σ_r (n_r / n)·g_r            n_r of the step's n samples are on rank r
    w   ← w − η·g

With equal parts n_r / n = 1/K, the documents' plain mean. The loss is multiplied by it before backward, which saves a
pass through the whole gradient. Because every rank applies the same g
to the same w, the copies stay bitwise equal, and the run equals single-process SGD on the union
of the batches, to rounding. Cost per step: one all-reduce of the gradient; the slowest rank sets
the pace. Source: Chen et al., "Revisiting distributed synchronous SGD", 2016.
"""

from __future__ import annotations

from torch import nn

from farandole.collectives.executor import AllReduce
from farandole.data.batch import Batch
from farandole.data_parallel.training import Strategy
from farandole.models.optimizers import MakeOptimizer
from farandole.runtime.buffers import FlatBuffers
from farandole.runtime.communicator import Buffer
from farandole.runtime.world import World
from farandole.tasks import Loss


class SynchronousSGD(Strategy):
    """A model trained in step with its copies on all other ranks.

    Args:
        gradients: memory for the gradient, where it is to lie in a certain place.
    """

    def __init__(
        self,
        world: World,
        model: nn.Module,
        loss: Loss,
        make_optimizer: MakeOptimizer,
        all_reduce: AllReduce,
        bytes_are_counted: bool = True,
        gradients: Buffer | None = None,
    ) -> None:
        self.world = world
        self.model = model
        self.loss = loss
        self.all_reduce = all_reduce
        self.bytes_are_counted = bytes_are_counted
        self.flat = FlatBuffers(model, gradients, direct=world.transport == "direct")
        self.optimizer = make_optimizer(self.flat.values, self.flat.gradients)

    def step(self, batch: Batch, share: float) -> float:
        with self.world.compute("forward and backward"):
            self.flat.zero_gradients()
            mean_loss = self.backward(batch, share)

        with self.world.communicate("all-reduce"):
            self.flat.to_host()
            self.all_reduce(self.world.comm, self.flat.on_wire)
            self.flat.from_host()

        with self.world.compute("update"):
            self.optimizer.step()
        return mean_loss.item()
