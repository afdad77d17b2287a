"""Synchronous SGD with compressed gradients.

    g_r = n_r/n · ∇ mean loss of rank r's part of the batch         as in `synchronous`
    g   ≈ Σ_r decode(encode(g_r))
    w   ← w − η·g

All ranks decode the same bytes in the same order, so their copies of the model stay bitwise equal, however much is
lost. A NaN or an infinity on one rank ends the training on all of them, in the same step (`compression.non_finite`).
Compression pays if encoding and decoding take less time than the bytes they save would take on the network; the trace
has the three separately. Cost: that of `compression.exchange`, and two all-reduces for PowerSGD. Sources: those of
`compression`; documents 001 and 002 name the family.
"""

from __future__ import annotations

import numpy as np
from torch import nn

from farandole.collectives.executor import run
from farandole.collectives.ring import RING
from farandole.compression.compressor import Compressor, Vector, as_payload
from farandole.compression.exchange import bytes_of_ring, decoded_sum, gather, swap_rows, transfer
from farandole.compression.majority_vote import MajorityVote
from farandole.compression.non_finite import check_sum
from farandole.compression.powersgd import PowerSGD
from farandole.compression.terngrad import TernGrad
from farandole.data.batch import Batch
from farandole.data_parallel.training import Strategy
from farandole.models.optimizers import MakeOptimizer
from farandole.runtime.buffers import FlatBuffers
from farandole.runtime.world import World
from farandole.tasks import Loss


class CompressedSGD(Strategy):
    """A model trained in step with its copies on all other ranks.

    Args:
        compressor: this rank's; a `PowerSGD` or `MajorityVote` for the shapes of the model's parameters.
    """

    bytes_are_counted = True
    ring_bytes: int

    def __init__(
        self,
        world: World,
        model: nn.Module,
        loss: Loss,
        make_optimizer: MakeOptimizer,
        compressor: Compressor | PowerSGD | MajorityVote,
    ) -> None:
        self.world = world
        self.model = model
        self.loss = loss
        self.compressor = compressor
        self.flat = FlatBuffers(model)
        self.optimizer = make_optimizer(self.flat.values, self.flat.gradients)
        self.ring_bytes = 0

    def step(self, batch: Batch, share: float) -> float:
        with self.world.compute("forward and backward"):
            self.flat.zero_gradients()
            mean_loss = self.backward(batch, share)
            self.flat.to_host()

        gradient = self.flat.gradients_np
        self.ring_bytes += bytes_of_ring(len(gradient), gradient.itemsize, self.world.rank, self.world.size)
        total = self._sum(gradient.astype(np.float32, copy=False))  # what compressors count in
        check_sum(total, gradient, self.world.size, self.world.control.Allgather)
        gradient[:] = total

        with self.world.compute("update"):
            self.flat.from_host()
            self.optimizer.step()
        return mean_loss.item()

    def _sum(self, gradient: Vector) -> Vector:
        """Return the sum of all ranks' gradients, as far as it survives."""
        compressor, world = self.compressor, self.world
        if isinstance(compressor, PowerSGD):
            return self._sum_by_matrices(compressor, gradient)
        if isinstance(compressor, MajorityVote):
            return self._vote(compressor, gradient)
        if isinstance(compressor, TernGrad) and compressor.shared:
            with world.compute("encode"):
                scales = compressor.scales(gradient)
            with world.communicate("transfer"):
                everybodys = gather(world.comm, as_payload(scales)).view(np.float32)
            compressor.share(everybodys, len(gradient))
        with world.compute("encode"):
            payload = compressor.encode(gradient)
        with world.communicate("transfer"):
            carried = transfer(compressor, world.comm, payload)
        with world.compute("decode"):
            return decoded_sum(compressor, carried, len(gradient), world.size)

    def _vote(self, vote: MajorityVote, gradient: Vector) -> Vector:
        """Return the signs of the majority of the ranks' gradients; this rank counts the votes on its part."""
        world = self.world
        with world.compute("encode"):
            ballots = vote.ballots(gradient)
        with world.communicate("transfer"):
            received = swap_rows(world.comm, ballots)
        with world.compute("decode"):
            verdict = vote.count(received)
        with world.communicate("transfer"):
            verdicts = gather(world.comm, verdict)
        with world.compute("decode"):
            return vote.decode(verdicts)

    def _sum_by_matrices(self, powersgd: PowerSGD, gradient: Vector) -> Vector:
        world = self.world
        with world.compute("encode"):
            left = powersgd.project(gradient)
        with world.communicate("transfer"):
            run(RING, world.comm, left)
        with world.compute("encode"):
            right = powersgd.project_back(left)
        with world.communicate("transfer"):
            run(RING, world.comm, right)
        with world.compute("decode"):
            return powersgd.decode(right)
