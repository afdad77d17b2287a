"""AD-PSGD: ranks have no common steps. A rank that has a gradient averages with one neighbour, and continues.

One iteration of rank i:

    g = ∇f_i(x_i)                             at x_i as it is when the iteration begins
    x_i, x_j ← (x_i + x_j) / 2                with a neighbour j drawn at random, if i is an active rank
    x_i ← x_i − γ·g                           x_i as it is by now

The average of a pair is atomic: neither vector changes between the request and the mean, so Σx moves only by gradients.
A passive rank's x is changed by its own updates and by its responder thread, which answers requests while the rank
computes; a lock keeps the two apart. Its gradients are of a copy made when the iteration began.

    active      g at x │ x to j ─→ wait ─→ mean │ update │ next …
    passive j   ─ g at a copy of x ─────────────────│ update │ next …
       thread           └ mean of both, x ← mean, mean back

`pairing` chooses the active ranks and their partners, and `iterations` counts the iterations. A slow rank delays only a
rank that requests an average during its update. A fast rank takes more of the iterations, so the model learns more from
its shard. For comparability with synchronous SGD, gradients are scaled as in `dpsgd`.

Cost: two messages of n bytes for every iteration of an active rank, one each way. Source: Lian et al., "Asynchronous
decentralized parallel stochastic gradient descent", 2018.
"""

from __future__ import annotations

import threading
import time

import numpy as np
from torch import nn

from farandole.data.batch import Batch
from farandole.data_parallel.loss_log import Observation
from farandole.data_parallel.training import Strategy
from farandole.decentralised.exchange import average, consensus
from farandole.decentralised.pairing import Pairing, average_pair, partners
from farandole.decentralised.responder_thread import PAUSE_S, ResponderThread
from farandole.decentralised.topologies import Topology
from farandole.models.optimizers import MakeOptimizer
from farandole.runtime.buffers import FlatBuffers
from farandole.runtime.world import World
from farandole.tasks import Loss

PAIR = 3  # MPI tag


class ADPSGD(Strategy):
    """A model that is averaged with one other model at a time.

    Args:
        every: iterations of an active rank from one average to the next.
        seed: of the random choice of partners.

    Attributes:
        x: this rank's parameters; the model's own are a copy, made when an iteration begins.
        averages: number of averages of this rank.
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
        seed: int = 0,
    ) -> None:
        self.world, self.model, self.loss = world, model, loss
        self.flat = FlatBuffers(model)
        self.optimizer = make_optimizer(self.flat.values, self.flat.gradients)
        self.flat.values_to_host()
        self.x = self.flat.values_np.copy()
        self.averages = 0
        self.pairing = Pairing(partners(graph), every)
        self._other = np.empty_like(self.x)
        self._lock = threading.Lock()
        self._draw = np.random.default_rng([seed, world.rank])
        self._begun = 0
        is_active = world.rank in self.pairing.partners
        self._responder = None if is_active else ResponderThread("averages", self._answer)

    def step(self, batch: Batch, share: float) -> float:
        if self._responder:
            self._responder.check()
        self._begun += 1
        with self.world.compute("forward and backward"):
            self._load()
            self.flat.zero_gradients()
            mean_loss = self.backward(batch, share * self.world.size)
        other = self.pairing.partner(self.world.rank, self._begun, self._draw.random)
        if other is not None:
            self._average_with(other)
        with self.world.compute("update"), self._lock:
            self.flat.values_np[:] = self.x
            self.flat.values_from_host()
            self.optimizer.step()
            self.flat.values_to_host()
            self.x[:] = self.flat.values_np
        return mean_loss.item()

    def observe(self) -> Observation:
        with self._lock:
            return consensus(self.x, self.world.size)

    def finish(self) -> None:
        """Replace the model by the mean of all copies, once no rank requests an average."""
        with self.world.comm.waiting("the others' last averages", -1):
            self.world.control.Barrier()
        if self._responder:
            self._responder.close()
        average(self.world, self.x)
        self._load()

    def _load(self) -> None:
        with self._lock:
            self.flat.values_np[:] = self.x
        self.flat.values_from_host()

    def _average_with(self, other: int) -> None:
        """Send x to the passive rank `other`, and receive the mean. Nothing else changes an active rank's x."""
        comm = self.world.comm
        with self.world.trace.span(f"average with {other}", "communicate"):
            comm.complete(comm.begin_exchange([self.x], other, [self._other], other, PAIR))
        self.x[:] = self._other
        self.averages += 1

    def _answer(self) -> bool:
        """Average with the active rank whose request has arrived, if one has; in a passive rank's thread."""
        comm = self.world.comm
        other = comm.arrived(PAIR)
        if other is None:
            return False
        comm.take(self._other, other, PAIR)
        with self._lock:
            average_pair(self.x, self._other)
            self.averages += 1
        leaving = comm.post(self._other, other, PAIR)
        while not leaving.Test():
            time.sleep(PAUSE_S)
        return True
