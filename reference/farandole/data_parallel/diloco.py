"""DiLoCo: ranks train alone for H steps; the mean of what they have moved is a gradient for a second optimizer.

    each step        θ_r ← θ_r − inner optimizer, on rank r's part of the batch           AdamW in the paper
    every H steps    Δ   = θ − Σ_r (n_r / n)·θ_r       n_r / n: rank r's mean share of the batches since the last time
                     v   ← μv + Δ;  θ ← θ − η(Δ + μv)  outer Nesterov step, the same on every rank
                     θ_r ← θ

θ is the model that all ranks had after the last outer step. The inner optimizers keep their state. With η = 1 and μ = 0
it is local SGD: θ becomes the mean. Momentum takes directions further on which the ranks agree period after period.

    F fragments      fragment f of the parameters has its outer step H·f/F steps before the end of the period (streaming
                     DiLoCo): as many bytes, in F messages a period, each 1/F as large

The overlap of messages with steps, the paper's other half of streaming, is not here.

Cost: an all-reduce every H steps, 1/H of the bytes of synchronous SGD; two vectors of memory, θ and v.
Sources: Douillard et al., "DiLoCo: distributed low-communication training of language models", 2023, with H = 500,
η = 0.7, μ = 0.9; Douillard et al., "Streaming DiLoCo with overlapping communication", 2025; an outer momentum on local
SGD before: Wang et al., "SlowMo", 2020.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import nn

from farandole.collectives.executor import AllReduce
from farandole.collectives.steps import chunk_slices
from farandole.data.batch import Batch
from farandole.data_parallel.training import Strategy
from farandole.errors import UsageError
from farandole.models.optimizers import MakeOptimizer
from farandole.runtime.buffers import FlatBuffers
from farandole.runtime.world import World
from farandole.tasks import Loss


class DiLoCo(Strategy):
    """A model that is trained apart from its copies, and moved with them by an outer optimizer.

    Args:
        period: inner steps from one outer step to the next.
        outer_lr, outer_momentum: η and μ.
        fragments: into how many the parameters are cut, each with outer steps at other times.

    Raises:
        UsageError: more fragments than steps of a period.
    """

    def __init__(
        self,
        world: World,
        model: nn.Module,
        loss: Loss,
        make_optimizer: MakeOptimizer,
        all_reduce: AllReduce,
        period: int,
        outer_lr: float,
        outer_momentum: float,
        fragments: int = 1,
        bytes_are_counted: bool = True,
    ) -> None:
        if fragments > period:
            raise UsageError(f"--fragments {fragments} in a --period of {period} steps: give at most {period}")
        self.world = world
        self.model = model
        self.loss = loss
        self.all_reduce = all_reduce
        self.period, self.outer_lr, self.outer_momentum = period, outer_lr, outer_momentum
        self.bytes_are_counted = bytes_are_counted
        self.flat = FlatBuffers(model)
        self.optimizer = make_optimizer(self.flat.values, self.flat.gradients)
        self.fragments = chunk_slices(len(self.flat.values), fragments)
        self.common: NDArray[np.floating] = self.flat.values_np.copy()
        self.velocity = np.zeros_like(self.common)
        self._shares: list[list[float]] = [[] for _ in self.fragments]  # since the fragment's last outer step
        self._done = 0

    def step(self, batch: Batch, share: float) -> float:
        with self.world.compute("forward and backward"):
            self.flat.zero_gradients()
            mean_loss = self.loss(self.model, batch)
            mean_loss.backward()
        with self.world.compute("update"):
            self.optimizer.step()
        self._done += 1
        for number, shares in enumerate(self._shares):
            shares.append(share)
            if (self._done + self.period * number // len(self.fragments)) % self.period == 0:
                self.outer_step(number)
        return mean_loss.item()

    def finish(self) -> None:
        """Take the outer step of every fragment that has moved since its last one."""
        for number, shares in enumerate(self._shares):
            if shares:
                self.outer_step(number)

    def outer_step(self, number: int) -> None:
        """Move a fragment by the mean of what all ranks have moved it, and continue from there. Collective."""
        part, shares = self.fragments[number], self._shares[number]
        self._shares[number] = []
        with self.world.communicate("average"):
            self.flat.values_to_host()
            own, common, velocity = (each[part] for each in (self.flat.values_np, self.common, self.velocity))
            moved = (common - own) * (sum(shares) / len(shares))
            self.all_reduce(self.world.comm, moved)
            velocity *= self.outer_momentum
            velocity += moved
            common -= self.outer_lr * (moved + self.outer_momentum * velocity)
            own[:] = common  # the same bits on all ranks
            self.flat.values_from_host()
