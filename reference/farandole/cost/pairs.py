"""AD-PSGD for many workers: a worker that has a gradient averages with one neighbour, event by event.

The rule is the one that runs over MPI (`decentralised.ad_psgd`): `decentralised.pairing` decides which worker sends a
request to which, and `decentralised.iterations` counts. Here is only how long everything takes. A message takes α + nβ,
and so does the answer. A passive worker's responder thread answers one request after the other, whatever else its
worker does, and is busy with each until the answer is sent:

    active      compute │ request ─→ (others first) mean │ ─→ answer │ update, next
    passive     compute │ update, next                   x ← mean, meanwhile

The mean is atomic: both vectors are as they are at that time, and the gradient is the one at x when the iteration
began. On the quadratic with noise, the loss is the mean of all workers' own.

Cost: an iteration is one to three events. Source: Lian et al., "Asynchronous decentralized parallel stochastic gradient
descent", 2018.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from farandole.cost.gossip import graph_of
from farandole.cost.quadratic import CURVATURES, ROWS_OF_NOISE, Copies
from farandole.cost.setting import Draws, Outcome, Setting
from farandole.decentralised.iterations import NONE_LEFT, Iterations
from farandole.decentralised.pairing import Pairing, average_pair, partners
from farandole.runtime.event_queue import EventQueue


@lru_cache
def passive_partners(name: str, workers: int) -> dict[int, tuple[int, ...]]:
    """Return each active worker of the graph of that name, and the passive workers that it may choose."""
    return partners(graph_of(name, workers))


class Pairs:
    """Workers 0 to n − 1, until as many iterations are done as there are gradients.

    Args:
        name: of the graph.
        every: iterations of an active worker from one average to the next.
    """

    def __init__(self, setting: Setting, name: str = "ring", every: int = 1) -> None:
        workers = setting.workers
        self.setting = setting
        self.pairing = Pairing(passive_partners(name, workers), every)
        self.iterations = Iterations(workers, setting.steps * workers)
        self.outcome = Outcome(staleness=self.iterations.staleness, lead=self.iterations.lead)
        self.copies, self._draws = Copies(setting, self.outcome), Draws(setting)
        self._message_s = setting.link.alpha + setting.nbytes * setting.link.beta
        self._noise = np.random.default_rng([setting.seed, 1])
        self._choice = np.random.default_rng([setting.seed, 2])
        self._rows, self._row = np.empty((0, len(CURVATURES))), 0
        self._moves = np.empty_like(self.copies.x)  # of each worker's gradient
        self._queue = EventQueue[tuple[str, int]]()  # what happens, to which worker
        self._partner = [0] * workers
        self._free = [0.0] * workers  # when each responder thread will be

    def run(self) -> Outcome:
        for worker in range(self.setting.workers):
            self._begin(worker)
        handlers = {"computed": self._computed, "met": self._average, "answered": self._update}
        for kind, worker in self._queue.events():
            handlers[kind](worker)
        self.outcome.wall_s, self.outcome.gradients = self._queue.now, self.iterations.finished
        self.copies.finish()
        return self.outcome

    def _begin(self, worker: int) -> None:
        """Take the next iteration, if one is left."""
        iteration = self.iterations.begun_by[worker]
        if self.iterations.begin(worker) == NONE_LEFT:
            return
        if self._row == len(self._rows):
            if self.setting.progress:
                self.setting.progress(self._row)
            self._rows, self._row = self._noise.normal(scale=self.setting.noise, size=(ROWS_OF_NOISE, 4)), 0
        self._moves[worker] = self.setting.lr * (CURVATURES * self.copies.x[worker] + self._rows[self._row])
        self._row += 1
        compute_s = self._draws.seconds(worker, iteration)
        self.outcome.compute_s += compute_s
        self.outcome.computed += 1
        self._queue.add(self._queue.now + compute_s, ("computed", worker))

    def _computed(self, worker: int) -> None:
        other = self.pairing.partner(worker, self.iterations.begun_by[worker], self._choice.random)
        if other is None:
            self._update(worker)
            return
        # All messages take equally long, so they arrive in the order in which they are sent.
        self._partner[worker] = other
        arrives = self._queue.now + self._message_s
        begins = max(arrives, self._free[other])
        self._free[other] = begins + self._message_s
        self.outcome.comm_s += 2 * self._message_s
        self.outcome.wait_s += begins - arrives
        self._queue.add(begins, ("met", worker))

    def _average(self, worker: int) -> None:
        average_pair(self.copies.x[worker], self.copies.x[self._partner[worker]])
        self._queue.add(self._queue.now + self._message_s, ("answered", worker))

    def _update(self, worker: int) -> None:
        self.copies.x[worker] -= self._moves[worker]
        self.iterations.finish(worker)
        if self.iterations.finished * 10 % self.setting.workers < 10:  # ten times a step
            self.copies.look(self._queue.now)
        self._begin(worker)
