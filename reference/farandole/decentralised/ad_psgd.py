"""AD-PSGD: no step is taken together. Whoever has a gradient averages with one neighbour, and goes on.

One iteration of rank i:

    g = ∇f_i(x_i)                             at x_i as it is when the iteration begins
    x_i, x_j ← (x_i + x_j) / 2                with a neighbour j drawn at random, if i is one of those that ask
    x_i ← x_i − γ·g                           x_i as it is by now

The average of a pair is atomic: nothing changes either vector between what goes into it and what comes out, so Σx moves
only by gradients. A passive rank's x is changed by its own updates and by its thread, which answers those that ask
while it computes; a lock keeps them apart. Its gradients are of a copy made when the iteration began.

    active      g at x │ x to j ─→ wait ─→ mean │ update │ next …
    passive j   ─ g at a copy of x ─────────────────│ update │ next …
       thread           └ mean of both, x ← mean, mean back

Who asks and who answers is `pairing`; how iterations are counted, and why a slow rank delays nobody but who asks it
in the very moment of its update, `bookkeeping`. A fast rank takes more of the iterations: its shard counts for more in
what is learned. For comparability with synchronous SGD gradients are scaled as in `dpsgd`.

Cost: two messages of n bytes for every iteration of an active rank, one each way. Source: Lian et al., "Asynchronous
decentralized parallel stochastic gradient descent", 2018.
"""

from __future__ import annotations

import threading
import time

import numpy as np
from torch import Tensor, nn

from farandole.data_parallel.loss_log import Observation
from farandole.data_parallel.training import Strategy
from farandole.decentralised.attendant import PAUSE_S, Attendant
from farandole.decentralised.exchange import average, consensus
from farandole.decentralised.pairing import partners
from farandole.decentralised.topologies import Topology
from farandole.models.optimizers import MakeOptimizer
from farandole.runtime.buffers import FlatBuffers
from farandole.runtime.world import World
from farandole.tasks import Loss

PAIR = 3  # MPI tag


class ADPSGD(Strategy):
    """A model that is averaged with one other at a time.

    Args:
        every: so many iterations of an active rank from one average to the next.
        seed: from which it is drawn whom it asks.

    Attributes:
        x: this rank's parameters; the model's own are a copy, made when an iteration begins.
        averages: how many this rank has taken part in.
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
        self.world, self.model, self.loss, self.every = world, model, loss, every
        self.flat = FlatBuffers(model)
        self.optimizer = make_optimizer(self.flat.values, self.flat.gradients)
        self.flat.values_to_host()
        self.x = self.flat.values_np.copy()
        self.averages = 0
        self._other = np.empty_like(self.x)
        self._lock = threading.Lock()
        asked = partners(graph)
        self._partners = asked.get(world.rank, ())
        self._draw = np.random.default_rng([seed, world.rank])
        self._done = 0
        self._attendant = None if world.rank in asked else Attendant("averages", self._answer)

    def step(self, inputs: Tensor, targets: Tensor, share: float) -> float:
        if self._attendant:
            self._attendant.check()
        with self.world.compute("forward and backward"):
            self._load()
            self.flat.zero_gradients()
            mean_loss = self.loss(self.model(inputs), targets)
            (mean_loss * (share * self.world.size)).backward()
        self._done += 1
        if self._partners and self._done % self.every == 0:
            self._ask(int(self._draw.choice(self._partners)))
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
        """When nobody asks any more, the mean of all copies is what was trained."""
        with self.world.comm.waiting("the others' last averages", -1):
            self.world.control.Barrier()
        if self._attendant:
            self._attendant.close()
        average(self.world, self.x)
        self._load()

    def _load(self) -> None:
        with self._lock:
            self.flat.values_np[:] = self.x
        self.flat.values_from_host()

    def _ask(self, other: int) -> None:
        """Have the mean of both. Nothing else changes an active rank's x meanwhile."""
        comm = self.world.comm
        with self.world.trace.span(f"average with {other}", "communicate"):
            comm.complete(comm.begin_exchange([self.x], other, [self._other], other, PAIR))
        self.x[:] = self._other
        self.averages += 1

    def _answer(self) -> bool:
        """In a passive rank's thread: the mean of both, for both, if somebody has asked."""
        comm = self.world.comm
        other = comm.arrived(PAIR)
        if other is None:
            return False
        comm.take(self._other, other, PAIR)
        with self._lock:
            self._other += self.x
            self._other /= 2
            self.x[:] = self._other
            self.averages += 1
        leaving = comm.post(self._other, other, PAIR)
        while not leaving.Test():
            time.sleep(PAUSE_S)
        return True
