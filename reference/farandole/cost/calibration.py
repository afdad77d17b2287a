"""The measurements of a machine that a prediction needs, made before the run that is predicted.

The network: α and β from all-gathers by a ring, of several lengths, between the very ranks.

Computing: each method's own `Strategy` takes some steps over a network that carries nothing, and only lets as much time
pass as that one would take, which is then subtracted: a core that has been idle computes more slowly at first. All
ranks step at the same time, so they compete for the cores as they will; encoding, decoding and adding are done, and
slow ranks are slow; but no rank waits for another, and what arrives is zeros. What is learned is thrown away.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from statistics import median

import numpy as np
from torch import nn

from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.collectives.costs import Link
from farandole.collectives.executor import run
from farandole.collectives.fitting import Measurement, fitted
from farandole.collectives.ring import ALL_GATHER
from farandole.cost.cost_function import NoiseScale, noise_scale
from farandole.cost.stragglers import Times
from farandole.data.batch import Batch
from farandole.data_parallel.synchronous import SynchronousSGD
from farandole.data_parallel.training import MakeStrategy
from farandole.models.layerwise import maker_for
from farandole.runtime.communicator import Buffer, Communicator, Pending
from farandole.runtime.timing import slowest_s
from farandole.runtime.trace import Span
from farandole.runtime.world import World
from farandole.tasks import Loss

WARM_UP = 3
REPEATS = 5
PARTS = (4, 2, 1)  # of the parameters, what is sent to measure the network
Part = tuple[Batch, float]  # of a batch, and its share of the whole batch


class PassingTime(Communicator):
    """Carries nothing: lets as much time pass as a message would take; what is received is zeros.

    Attributes:
        passed: seconds so far.
    """

    def __init__(self, comm: Communicator, link: Link) -> None:
        super().__init__(comm.mpi, members=comm.members)
        self._costs = link
        self.passed = 0.0

    def send(self, buffer: Buffer, to: int) -> None:
        self._pass(buffer.nbytes)

    def receive(self, buffer: Buffer, source: int) -> None:
        self._pass(buffer.nbytes)
        buffer.fill(0)

    def exchange(self, send: Buffer, to: int, receive: Buffer, source: int) -> None:
        self._pass(max(send.nbytes, receive.nbytes))
        receive.fill(0)

    def begin_exchange(
        self, send: Sequence[Buffer], to: int, receive: Sequence[Buffer], source: int, tag: int
    ) -> Pending:
        for buffer in send:
            self._pass(buffer.nbytes)
        for buffer in receive:
            buffer.fill(0)
        return Pending(source, [], [], [])

    def complete(self, pending: Pending) -> None:
        pass

    def split(self, color: int, key: int) -> Communicator:
        return self

    def _pass(self, nbytes: int) -> None:
        start = time.perf_counter()
        time.sleep(self._costs.message_s(nbytes))
        self.passed += time.perf_counter() - start


@contextmanager
def without_network(world: World, link: Link) -> Iterator[PassingTime]:
    """Within, `world` has no network, and its trace keeps nothing."""
    comm, spans = world.comm, len(world.trace.spans)
    world.comm = passing = PassingTime(comm, link)
    try:
        yield passing
    finally:
        world.comm = comm
        del world.trace.spans[spans:]


def computing(
    world: World,
    make: MakeStrategy,
    model: nn.Module,
    loss: Loss,
    batches: Iterator[Part],
    steps: int,
    link: Link,
    begun: Callable[[], None] = lambda: None,
) -> Times:
    """Seconds that this method's steps take without the network, of shape (steps, ranks), the same on all. Collective.

    Args:
        link: what a message takes.
        begun: is called as each step that counts begins.
    """
    own, comm = np.empty(steps), world.comm
    world.begin_step(0)
    with without_network(world, link) as network:
        strategy = make(world, copy.deepcopy(model), loss)
        for step in range(-WARM_UP, steps):
            with comm.waiting("calibration", -1):
                world.control.Barrier()
            if step >= 0:
                begun()
            spans, passed, start = len(world.trace.spans), network.passed, time.perf_counter()
            strategy.step(*next(batches))
            took = time.perf_counter() - start
            if step >= 0:
                # Where messages go on beside the computation, less time than theirs is spent on them.
                own[step] = took - min(network.passed - passed, communicating(world.trace.spans[spans:]))
        strategy.finish()
    return gathered(world, own)


def noise(
    world: World, model: nn.Module, loss: Loss, batches: Iterator[Part], steps: int, batch: int, lr: float
) -> NoiseScale:
    """Return how noisy the gradients are, from each rank's own and the mean of all, over some steps. Collective.

    Args:
        batch: samples of all ranks together in a step.
    """
    squares: list[tuple[float, float]] = []

    def all_reduce(comm: Communicator, gradient: Buffer) -> None:
        own = float(gradient @ gradient) * world.size**2  # it comes as its share of the mean
        ALL_REDUCES["ring"](comm, gradient)
        squares.append((own, float(gradient @ gradient)))

    strategy = SynchronousSGD(world, copy.deepcopy(model), loss, maker_for(model, "sgd", lr), all_reduce)
    for _ in range(steps):
        strategy.step(*next(batches))
    own, mean = gathered(world, np.array(squares).mean(axis=0)).mean(axis=1)
    return noise_scale(batch // world.size, float(own), batch, float(mean))


def communicating(spans: Sequence[Span]) -> float:
    """Return the seconds of one rank's own thread in communication, waiting included."""
    return sum(span.end - span.start for span in spans
               if span.category == "communicate" and not span.depth and not span.beside)  # fmt: skip


def network(world: World, nbytes: int) -> Link:
    """α and β between these ranks, from vectors of up to `nbytes`; of a single rank 0. Collective."""
    if world.size == 1:
        return Link(0.0, 0.0)
    measured = []
    for part in PARTS:
        vector = np.zeros(max(1, nbytes // part), np.uint8)
        seconds = median(_timed(world, partial(run, ALL_GATHER, world.comm, vector)) for _ in range(REPEATS))
        measured.append(Measurement(ALL_GATHER, world.size, len(vector), seconds))
    return fitted(measured, gamma=0.0).link


def gathered(world: World, own: Times) -> Times:
    """Return all ranks' vectors as columns, in order of the ranks. Collective."""
    everything = np.empty((world.size, len(own)))
    with world.comm.waiting("measurements of all ranks", -1):
        world.control.Allgather(own, everything)
    return everything.T.copy()


def _timed(world: World, action: Callable[[], None]) -> float:
    with world.comm.waiting("measuring the network", -1):
        return slowest_s(world.control, action)
