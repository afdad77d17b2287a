"""DiLoCo: ranks train alone for H steps; the mean of what they have moved is a gradient for a second optimizer.

    each step        θ_r ← θ_r − inner optimizer, on rank r's part of the batch           AdamW in the paper
    every H steps    Δ   = θ − Σ_r (n_r / n)·θ_r       n_r / n: rank r's mean share of the batches since the last time
                     v   ← μv + Δ;  θ ← θ − η(Δ + μv)  outer Nesterov step, the same on every rank
                     θ_r ← θ

θ is the model that all ranks had after the last outer step. The inner optimizers keep their state. With η = 1 and μ = 0
it is local SGD: θ becomes the mean. Momentum takes directions further on which the ranks agree period after period.

Streaming DiLoCo (流式) spreads this over the period, and the ranks train on meanwhile:

    F fragments      fragment f of the parameters has its outer step H·f/F steps before the end of the period: as many
                     bytes, in F messages a period, each 1/F as large
    delay τ          a thread adds up a fragment's moves while the ranks take τ more steps; θ has its outer step then,
                     and θ_r ← m·θ_r + (1−m)·θ    mixing m: a rank keeps a part of what it has learned meanwhile

Cost: an all-reduce every H steps, 1/H of the bytes of synchronous SGD; two vectors of memory, θ and v. A delay hides
what takes the network less than τ steps.
Sources: Douillard et al., "DiLoCo: distributed low-communication training of language models", 2023, with H = 500,
η = 0.7, μ = 0.9; Douillard et al., "Streaming DiLoCo with overlapping communication", 2025; an outer momentum on local
SGD before: Wang et al., "SlowMo", 2020. `recovery.elastic_diloco` continues when a rank dies.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import nn

from farandole.collectives.executor import AllReduce
from farandole.collectives.steps import chunk_slices
from farandole.data.batch import Batch
from farandole.data_parallel.outer_step import Outer
from farandole.data_parallel.training import Strategy
from farandole.models.optimizers import MakeOptimizer
from farandole.runtime.buffers import FlatBuffers
from farandole.runtime.world import World
from farandole.tasks import Loss


@dataclass(frozen=True)
class Sum:
    """The ranks' moves of a fragment, which are being added up.

    Attributes:
        due: after which step they are needed.
        moved: what this rank contributes; the sum of all when `ready`.
    """

    fragment: int
    due: int
    moved: NDArray[np.floating]
    ready: Future[None]


class DiLoCo(Strategy):
    """A model that is trained apart from its copies, and moved with them by an outer optimizer."""

    def __init__(
        self,
        world: World,
        model: nn.Module,
        loss: Loss,
        make_optimizer: MakeOptimizer,
        all_reduce: AllReduce,
        outer: Outer,
        bytes_are_counted: bool = True,
    ) -> None:
        self.world = world
        self.model = model
        self.loss = loss
        self.all_reduce = all_reduce
        self.outer = outer
        self.bytes_are_counted = bytes_are_counted
        self.flat = FlatBuffers(model)
        self.optimizer = make_optimizer(self.flat.values, self.flat.gradients)
        self.fragments = chunk_slices(len(self.flat.values), outer.fragments)
        self.common: NDArray[np.floating] = self.flat.values_np.copy()
        self.velocity = np.zeros_like(self.common)
        self._shares: list[list[float]] = [[] for _ in self.fragments]  # since the fragment was last sent
        self._sums: list[Sum] = []  # under way, in the order of all ranks
        self._done = 0
        # A separate communicator: the thread's messages must not meet those of the steps.
        self._comm = world.comm.split(0, world.rank) if outer.delay else world.comm
        self._thread = ThreadPoolExecutor(1, "all-reduce") if outer.delay else None

    def step(self, batch: Batch, share: float) -> float:
        with self.world.compute("forward and backward"):
            self.flat.zero_gradients()
            mean_loss = self.backward(batch, weight=1.0)
        with self.world.compute("update"):
            self.optimizer.step()
        self._done += 1
        for fragment, shares in enumerate(self._shares):
            shares.append(share)
            if self.outer.sends(fragment, self._done):
                self.send(fragment)
        while self._sums and self._sums[0].due <= self._done:
            self.outer_step(self._sums.pop(0))
        return mean_loss.item()

    def finish(self) -> None:
        """Take the outer steps of all that has moved; the trained model is the common one."""
        for each in self._sums:
            self.outer_step(each)
        self._sums = []
        for fragment, shares in enumerate(self._shares):
            if shares:
                self.send(fragment)
                self.outer_step(self._sums.pop())
        self.flat.values_np[:] = self.common
        self.flat.values_from_host()
        if self._thread:
            self._thread.shutdown()

    def send(self, fragment: int) -> None:
        """Begin to add up how far the ranks have moved a fragment. Collective."""
        shares, self._shares[fragment] = self._shares[fragment], []
        part = self.fragments[fragment]
        self.flat.values_to_host()
        moved = (self.common[part] - self.flat.values_np[part]) * (sum(shares) / len(shares))
        if self._thread:
            ready = self._thread.submit(self._add_up_beside, moved)
        else:
            ready = Future()
            with self.world.communicate("average"):
                self.all_reduce(self._comm, moved)
            ready.set_result(None)
        self._sums.append(Sum(fragment, self._done + self.outer.delay, moved, ready))

    def outer_step(self, its: Sum) -> None:
        """Move a fragment by the mean of what all ranks have moved it, and continue from there. Collective."""
        if self._thread:
            with self.world.communicate("wait for the average"):
                its.ready.result()
        with self.world.compute("outer step"):
            part = self.fragments[its.fragment]
            self.flat.values_to_host()
            own, common, velocity = (each[part] for each in (self.flat.values_np, self.common, self.velocity))
            self.outer.move(common, velocity, its.moved)
            own[:] = self.outer.continued(own, common)
            self.flat.values_from_host()

    def _add_up_beside(self, moved: NDArray[np.floating]) -> None:
        """In the thread."""
        with self.world.trace.beside("all-reduce of a fragment"):
            self.all_reduce(self._comm, moved)
