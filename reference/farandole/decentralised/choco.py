"""CHOCO-SGD: gossip of compressed differences, which still converges to the mean.

If a rank sent C(x_i) instead of x_i, the compression error would be lost: the mean would move with every round, and the
copies would stay apart by the error. So each rank has a public copy x̂_i, which its neighbours know, and sends only the
difference from it:

    x_i ← x_i − γ_SGD·g_i                          the rank's own step
    q_i = C(x_i − x̂_i)                             is sent to the neighbours
    x̂_j ← x̂_j + q_j                               on all that receive it, and on rank j itself
    x_i ← x_i + γ·Σ_j W_ij·(x̂_j − x̂_i)           towards the neighbours' public copies

A rank need not keep all its neighbours' copies: the sum s_i = Σ_j W_ij·x̂_j is enough, to which each round adds
Σ_j W_ij·q_j. W is doubly stochastic and the same in all rounds, so the last line does not move the mean, whatever the
error of C. The error stays in x_i − x̂_i, and is sent later: the error feedback of gossip. ‖C(x) − x‖ must be below
‖x‖; the larger it is, the smaller the consensus step γ has to be. Without compression and with γ = 1 this is D-PSGD
that mixes after the update, since then x̂_i = x_i.

Cost: degree messages of c bytes a round, where c is the size of C(x); memory for two more vectors, in double precision.
Source: Koloskova, Stich & Jaggi, "Decentralized stochastic optimization and gossip algorithms with compressed
communication", 2019.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import nn

from farandole.compression.compressor import Compressor, Payload, Vector
from farandole.compression.non_finite import check_own
from farandole.data.batch import Batch
from farandole.data_parallel.loss_log import Observation
from farandole.data_parallel.training import Strategy
from farandole.decentralised.exchange import average, consensus, swap
from farandole.decentralised.mixing import doubly_stochastic
from farandole.decentralised.steps import Mixing
from farandole.decentralised.topologies import Topology
from farandole.errors import UsageError
from farandole.models.optimizers import MakeOptimizer
from farandole.runtime.buffers import FlatBuffers
from farandole.runtime.world import World
from farandole.tasks import Loss


class PublicCopies:
    """A rank's own public copy x̂_i, and the weighted sum Σ_j W_ij·x̂_j of its neighbours' and its own.

    Args:
        start: the parameters that all ranks begin with.
        step: this rank's row of W.
        consensus_step: γ, above 0 and up to 1.
    """

    def __init__(self, start: Vector, step: Mixing, consensus_step: float) -> None:
        # In single precision their rounding errors would move the mean a little in every round, in the same direction.
        self.own, self.mixed = start.astype(np.float64), start.astype(np.float64)
        self.step, self.consensus_step = step, consensus_step

    def difference(self, vector: Vector) -> Vector:
        """Return x_i − x̂_i: the difference of `vector`, this rank's parameters, from its public copy."""
        unknown: Vector = (vector - self.own).astype(np.float32)
        return unknown

    def mix(self, vector: Vector, sent: Vector, received: Sequence[Vector]) -> None:
        """Move `vector` towards the neighbours' public copies, in place.

        Args:
            sent: what this rank's payload decodes to, q_i.
            received: what those of `step.sources` decode to, in that order.
        """
        self.own += sent
        for weight, difference in zip((self.step.keep, *self.step.weights), (sent, *received), strict=True):
            self.mixed += weight * difference.astype(np.float64)
        vector += (self.consensus_step * (self.mixed - self.own)).astype(np.float32)


class ChocoSGD(Strategy):
    """A model that is trained beside its copies on other ranks, and mixed with their public copies.

    Args:
        graph: which ranks are neighbours, the same in all rounds.
        compressor: this rank's; its error must be smaller than the vector.
        every: steps from one mixing to the next.

    Raises:
        UsageError: the graph changes from round to round.
    """

    bytes_are_counted = True
    ring_bytes: int

    def __init__(
        self,
        world: World,
        model: nn.Module,
        loss: Loss,
        make_optimizer: MakeOptimizer,
        graph: Topology,
        compressor: Compressor,
        consensus_step: float,
        every: int = 1,
    ) -> None:
        if len(graph.rounds) > 1:
            raise UsageError(
                f"{graph.name} has other neighbours in each round, and CHOCO-SGD needs the same ones, whose public "
                "copies each rank knows: take another --topology"
            )
        self.world, self.model, self.loss = world, model, loss
        self.compressor, self.every = compressor, every
        self.flat = FlatBuffers(model)
        self.optimizer = make_optimizer(self.flat.values, self.flat.gradients)
        steps = [doubly_stochastic(graph, rank, 0) for rank in range(world.size)]  # all find the same fault, or none
        self.flat.values_to_host()
        self.copies = PublicCopies(self.flat.values_np, steps[world.rank], consensus_step)
        self.ring_bytes = 0
        self._done = 0

    def step(self, batch: Batch, share: float) -> float:
        with self.world.compute("forward and backward"):
            self.flat.zero_gradients()
            mean_loss = self.backward(batch, share * self.world.size)
        with self.world.compute("update"):
            self.optimizer.step()
        self._done += 1
        if self._done % self.every == 0:
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
        vector, step = self.flat.values_np, self.copies.step
        with self.world.compute("encode"):
            difference = self.copies.difference(vector)
            check_own(difference, "the difference that it sends to its neighbours")
            payload = self.compressor.encode(difference)
        arriving: list[Payload] = [np.empty_like(payload) for _ in step.sources]
        swap(self.world, step, f"mixing {self._done}", payload, arriving)
        with self.world.compute("decode"):
            sent, *received = (self.compressor.decode(each, len(vector)) for each in (payload, *arriving))
            self.copies.mix(vector, sent, received)
        self.flat.values_from_host()
        self.ring_bytes += len(step.to) * vector.nbytes
