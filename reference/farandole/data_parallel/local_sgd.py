"""Local SGD: every rank trains alone, and the ranks average their parameters only every H steps.

    each step        w_r ← w_r − η·∇ mean loss of rank r's part of the batch
    every H steps    w'  = Σ_r (n_r / n)·w_r            n_r / n: rank r's mean share of the batches since the last time
                     w_r ← (1−α)·w_r + α·w'

The rule of document 000 (erratum 000.15): parameters are averaged, and α is how far each rank moves to their mean; with
α = 1 all continue from the mean. Between two averages the copies drift apart, the further the larger H and η are and
the more the shards differ.

    H = 1, α = 1     synchronous SGD, to rounding: the mean of the steps is the step with the mean gradient
    H = all steps    MapReduce SGD (document 004): one average, at the end, as there always is one with α = 1
    post-local       synchronous at first, when gradients change most, and then every H steps

Cost: an all-reduce, and waiting for the slowest rank, every H steps instead of every step. Sources: Stich, "Local
SGD converges fast and communicates little", 2019; Zinkevich et al., "Parallelized stochastic gradient descent", 2010;
Lin et al., "Don't use large mini-batches, use local SGD", 2020.
"""

from __future__ import annotations

import numpy as np
from torch import nn

from farandole.collectives.executor import AllReduce
from farandole.data.batch import Batch
from farandole.data_parallel.training import Strategy
from farandole.models.optimizers import MakeOptimizer
from farandole.runtime.buffers import FlatBuffers
from farandole.runtime.world import World
from farandole.tasks import Loss


class LocalSGD(Strategy):
    """A model that is trained apart from its copies on the other ranks, and averaged with them.

    Args:
        period: steps from one average to the next; None: there is none before the end.
        alpha: how far each rank moves to the mean, above 0 and up to 1.
        synchronous: the first steps, which have an average each, with an alpha of 1.
    """

    def __init__(
        self,
        world: World,
        model: nn.Module,
        loss: Loss,
        make_optimizer: MakeOptimizer,
        all_reduce: AllReduce,
        period: int | None,
        alpha: float = 1.0,
        synchronous: int = 0,
        bytes_are_counted: bool = True,
    ) -> None:
        self.world = world
        self.model = model
        self.loss = loss
        self.all_reduce = all_reduce
        self.period, self.alpha, self.synchronous = period, alpha, synchronous
        self.bytes_are_counted = bytes_are_counted
        self.flat = FlatBuffers(model)
        self.optimizer = make_optimizer(self.flat.values, self.flat.gradients)
        self._mean = np.empty_like(self.flat.values_np)
        self._done = 0
        self._shares: list[float] = []  # since the last average
        self._weight = 0.0  # in the last average

    def step(self, batch: Batch, share: float) -> float:
        with self.world.compute("forward and backward"):
            self.flat.zero_gradients()
            mean_loss = self.backward(batch, weight=1.0)
        with self.world.compute("update"):
            self.optimizer.step()
        self._done += 1
        self._shares.append(share)
        if self._done <= self.synchronous:
            self.average(alpha=1.0)
        elif self.period and (self._done - self.synchronous) % self.period == 0:
            self.average(self.alpha)
        return mean_loss.item()

    def finish(self) -> None:
        """Move all copies to their mean, unless they are there already."""
        if self._shares or self.alpha < 1:
            self.average(alpha=1.0)

    def average(self, alpha: float) -> None:
        """Move by `alpha` to the mean of all, each rank weighted by its share of the samples. Collective."""
        with self.world.communicate("average"):
            self.flat.values_to_host()
            own = self.flat.values_np
            if self._shares:
                self._weight = sum(self._shares) / len(self._shares)
            np.multiply(own, self._weight, out=self._mean)
            self.all_reduce(self.world.comm, self._mean)
            if alpha == 1:
                own[:] = self._mean  # the same bits on all ranks
            else:
                own *= 1 - alpha
                own += alpha * self._mean
            self.flat.values_from_host()
        self._shares = []
