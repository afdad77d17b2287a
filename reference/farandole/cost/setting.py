"""The input and output of a simulation, for every method: the setting, the computing times, the outcome."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from farandole.collectives.costs import Link
from farandole.cost.networks.named import NetworkChoice
from farandole.cost.stragglers import Constant, Straggler

Vector = NDArray[np.float64]
Numbers = NDArray[np.intp]
NO_NETWORK = Link(0.0, 0.0)  # every message arrives at once
WORKERS_PER_SERVER = 4  # Li et al., OSDI 2014, section 5.1: 800 machines as workers and 200 as servers


@dataclass(frozen=True)
class Setting:
    """The setting of a simulation, for every method.

    Attributes:
        steps: gradients of each worker, on average.
        compute_s: mean time of an unhindered worker's step.
        nbytes: the parameters, and a gradient.
        link: of each worker and of each server.
        duplex: whether reads do not queue with pushes.
        network: whose links the workers' messages share; None: only their own links are limited.
        noise: standard deviation of each entry of one worker's gradient.
        target: the loss to reach, as a part of the loss at the start.
        progress: is called now and then with the number of gradients begun since the last call.
    """

    workers: int
    steps: int
    compute_s: float = 0.1
    straggler: Straggler = field(default_factory=Constant)
    nbytes: float = 0.0
    link: Link = NO_NETWORK
    servers: int = 1
    duplex: bool = False
    network: NetworkChoice | None = None
    lr: float = 0.2
    noise: float = 0.3
    target: float = 0.05
    seed: int = 0
    progress: Callable[[int], object] | None = field(default=None, compare=False, repr=False)

    @property
    def link_busy_s(self) -> float:
        """Return for how long a message keeps a server's link busy."""
        return self.nbytes * self.link.beta / self.servers


def servers_for(workers: int) -> int:
    """Return the number of parameter servers of a cluster with this number of workers: one for every four."""
    return -(-workers // WORKERS_PER_SERVER)


@dataclass
class Outcome:
    """The result of a simulation.

    Attributes:
        wall_s: until the last update.
        gradients: how many were applied; one that is used again counts once.
        computed: how many were begun; some may never be applied.
        compute_s, comm_s, wait_s: seconds of all workers together; a pause that a policy makes is waiting.
        staleness: histogram, others' updates between reading and application.
        lead: histogram, clock minus slowest clock at each start.
        to_loss_s: when the loss reached the target; None: never.
        consensus_error: how far the workers' copies are apart at the end; None: there is one vector for all.
    """

    wall_s: float = 0.0
    gradients: int = 0
    computed: int = 0
    dropped: int = 0
    compute_s: float = 0.0
    comm_s: float = 0.0
    wait_s: float = 0.0
    staleness: Counter[int] = field(default_factory=Counter)
    lead: Counter[int] = field(default_factory=Counter)
    to_loss_s: float | None = None
    final_loss: float = 0.0
    consensus_error: float | None = None

    @property
    def wait_share(self) -> float:
        """Return the share of waiting in all workers' time."""
        total = self.compute_s + self.comm_s + self.wait_s
        return self.wait_s / total if total else 0.0

    def efficiency(self, workers: int) -> float:
        """Return the speed relative to a training with the same computing times, but without waiting or messages.

        At most 1, however the times were drawn: the computing time of the applied gradients, each counted with the mean
        of the drawn times, over the time of all workers.
        """
        mean_s = self.compute_s / self.computed
        return self.gradients * mean_s / (workers * self.wall_s)


class Draws:
    """Computing times: a worker's i-th is the same for every method, so that methods compare."""

    def __init__(self, setting: Setting) -> None:
        self._setting, self._recorded = setting, setting.straggler.recorded
        self._rng = np.random.default_rng([setting.seed, 0])
        self._rows, self._workers = setting.steps, setting.workers
        self._blocks: list[memoryview] = []  # each has `_rows` times of every worker, row by row

    def seconds(self, worker: int, iteration: int) -> float:
        """Return the seconds of that worker's iteration."""
        if self._recorded:
            own = self._recorded[worker]
            return own[iteration % len(own)] * self._setting.compute_s
        rows = self._rows
        try:
            block = self._blocks[iteration // rows]
        except IndexError:
            self._draw()
            return self.seconds(worker, iteration)
        seconds: float = block[iteration % rows * self._workers + worker]
        return seconds

    def drawn(self, workers: Numbers, iterations: Numbers) -> Vector:
        """Return the seconds of these workers' iterations."""
        while len(self._blocks) * self._rows <= iterations.max():
            self._draw()
        return self.known(workers, iterations)

    def known(self, workers: Numbers, iterations: Numbers) -> Vector:
        """Return the seconds of these workers' iterations, 0 for those that have not been drawn yet."""
        seconds = np.zeros(len(workers))
        places, size = iterations * self._workers + workers, self._rows * self._workers
        for number, block in enumerate(self._blocks):
            here = np.flatnonzero((number * size <= places) & (places < (number + 1) * size))
            seconds[here] = np.asarray(block)[places[here] - number * size]
        return seconds

    def block(self) -> Vector:
        """Draw the next times of all workers, in multiples of the mean, of shape (steps, workers)."""
        return self._setting.straggler.sample(self._rng, self._rows, self._setting.workers)

    def _draw(self) -> None:
        times = self.block()
        times *= self._setting.compute_s
        self._blocks.append(times.ravel().data)


def numbers(values: Sequence[int]) -> Numbers:
    """Return an array of these; `np.array` would look for their type, which takes longer."""
    return np.fromiter(values, dtype=np.intp, count=len(values))


def vector(values: Sequence[float]) -> Vector:
    """Return an array of these, as `numbers` does."""
    return np.fromiter(values, dtype=float, count=len(values))
