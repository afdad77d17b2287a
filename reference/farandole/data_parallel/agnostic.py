"""Synchronisation-agnostic SGD (不同步长的更新): each rank takes its own number of steps, of its own length.

In a round rank r takes τ_r local steps with the learning rate η_r, from the common w to w_r. An all-reduce combines:

    plain        w ← w − Σ_r p_r (w − w_r)                            p_r: r's share of the round's samples
    normalised   w ← w − a Σ_r p_r (w − w_r)/a_r,   a = Σ_r p_r a_r       a_r = τ_r·η_r

Document 001 leaves the rule open (erratum 001.7). The plain mean, that of `local_sgd`, moves farther for a rank that
took more steps: it ends at the optimum of another sum of losses, in which rank r has the weight p_r·a_r instead of p_r.
Normalised, each rank contributes a direction, its mean step, and all move by the mean length: the optimum is the right
one.

The number of a rank's steps follows from its share: a rank with twice the capability gets twice the samples, cuts them
into steps of equal size, takes twice as many steps, and finishes at the same time.

    τ_r = 1 and η_r = η on all ranks    synchronous SGD, to rounding
    a_r the same on all ranks           the two rules are one: local SGD, each part of the batch in τ steps

Cost: an all-reduce of the parameters a round. Source: Wang et al., "Tackling the objective inconsistency problem in
heterogeneous federated optimization", 2020 (FedNova).
"""

from __future__ import annotations

import numpy as np
from torch import nn

from farandole.collectives.executor import AllReduce
from farandole.data import batch as batches
from farandole.data.batch import Batch
from farandole.data_parallel.training import Strategy
from farandole.models.optimizers import SGD
from farandole.runtime.buffers import FlatBuffers
from farandole.runtime.world import World
from farandole.tasks import Loss


class AgnosticSGD(Strategy):
    """A model that each rank trains at its own pace, and all combine after every round.

    Args:
        pace: of this rank, by which `lr` is multiplied; the ranks' may differ.
        local_batch: samples of one local step; None: the rank's whole part of the round's samples.
        normalised: which rule, as above.
    """

    def __init__(
        self,
        world: World,
        model: nn.Module,
        loss: Loss,
        lr: float,
        pace: float,
        local_batch: int | None,
        normalised: bool,
        all_reduce: AllReduce,
        bytes_are_counted: bool = True,
    ) -> None:
        self.world = world
        self.model = model
        self.loss = loss
        self.pace, self.local_batch, self.normalised = pace, local_batch, normalised
        self.all_reduce = all_reduce
        self.bytes_are_counted = bytes_are_counted
        self.flat = FlatBuffers(model)
        self.optimizer = SGD(self.flat.values, self.flat.gradients, lr)
        self._common = self.flat.values_np.copy()
        self._sent = np.empty(len(self._common) + 1, self._common.dtype)  # and p·a behind it

    def step(self, batch: Batch, share: float) -> float:
        """One round. Returns the mean loss over this rank's part, each sample before the step that uses it."""
        loss, length = self.own_steps(batch)
        self.combine(share, length)
        return loss

    def own_steps(self, batch: Batch) -> tuple[float, float]:
        """The first half of a round. Returns the loss as `step` does, and a_r above."""
        samples = batches.size(batch)
        lr, loss = self.optimizer.lr, 0.0
        self.optimizer.lr = lr * self.pace
        with self.world.compute("steps of its own"):
            parts = batches.split(batch, self.local_batch or max(1, samples))
            for part in parts:
                self.flat.zero_gradients()
                mean_loss = self.backward(part, weight=1.0)
                self.optimizer.step()
                loss += mean_loss.item() * batches.size(part) / samples
        self.optimizer.lr = lr
        return loss, len(parts) * lr * self.pace

    def combine(self, share: float, length: float) -> None:
        """The second half: combine the ranks' results into the common parameters of the next round. Collective.

        Args:
            share: p_r above.
            length: a_r; 0 for a rank without samples, which has not moved.
        """
        with self.world.communicate("combination"):
            self.flat.values_to_host()
            values, moved = self.flat.values_np, self._sent[:-1]
            np.subtract(self._common, values, out=moved)
            moved *= share / (length if self.normalised and length else 1)
            self._sent[-1] = share * length
            self.all_reduce(self.world.comm, self._sent)
            values[:] = self._common - (self._sent[-1] if self.normalised else 1) * moved
            self._common[:] = values
            self.flat.values_from_host()
