"""AD-PSGD for many workers: a worker that has a gradient averages with one neighbour, event by event.

When an active worker has computed, it sends a request to a passive one, drawn at random from those that
`decentralised.pairing` allows. A message takes α + nβ, and so does the answer. A passive worker's responder thread
answers one request after the other, whatever else its worker does, and is busy with each until the answer is sent:

    active      compute │ request ─→ (others first) mean │ ─→ answer │ update, next
    passive     compute │ update, next                   x ← mean, meanwhile

The mean is atomic, as in `decentralised.ad_psgd`: both vectors are as they are at that time, and the gradient is the
one at x when the iteration began. A worker that is ready takes the next of all iterations, so a slow one does less. On
the quadratic with noise, the loss is the mean of all workers' own.

Cost: an iteration is one to three events. Source: Lian et al., "Asynchronous decentralized parallel stochastic gradient
descent", 2018.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from farandole.cost.gossip import graph_of
from farandole.cost.quadratic import CURVATURES, ROWS_OF_NOISE, Copies
from farandole.cost.setting import Draws, Outcome, Setting
from farandole.decentralised.pairing import partners
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
        self.setting, self.every = setting, every
        self.outcome = Outcome()
        self.copies, self._draws = Copies(setting, self.outcome), Draws(setting)
        self._partners = passive_partners(name, workers)
        self._message_s = setting.link.alpha + setting.nbytes * setting.link.beta
        self._noise = np.random.default_rng([setting.seed, 1])
        self._choice = np.random.default_rng([setting.seed, 2])
        self._rows, self._row = np.empty((0, len(CURVATURES))), 0
        self._moves = np.empty_like(self.copies.x)  # of each worker's gradient
        self._queue = EventQueue[tuple[str, int]]()  # what happens, to which worker
        self._partner = [0] * workers
        self._free = [0.0] * workers  # when each responder thread will be
        self._iterations = [0] * workers  # begun
        self._with = [workers]  # how many workers have begun 0, 1, 2, … of them
        self._slowest = self._begun = self._finished = 0
        self._finished_before = [0] * workers

    def run(self) -> Outcome:
        for worker in range(self.setting.workers):
            self._begin(worker)
        handlers = {"computed": self._computed, "met": self._average, "answered": self._update}
        for kind, worker in self._queue.events():
            handlers[kind](worker)
        self.outcome.wall_s, self.outcome.gradients = self._queue.now, self._finished
        self.copies.finish()
        return self.outcome

    def _begin(self, worker: int) -> None:
        """Take the next iteration, if one is left."""
        if self._begun == self.setting.steps * self.setting.workers:
            return
        self._begun += 1
        iteration = self._iterations[worker]
        self._count(worker)
        self._finished_before[worker] = self._finished
        if self._row == len(self._rows):
            self._rows, self._row = self._noise.normal(scale=self.setting.noise, size=(ROWS_OF_NOISE, 4)), 0
        self._moves[worker] = self.setting.lr * (CURVATURES * self.copies.x[worker] + self._rows[self._row])
        self._row += 1
        compute_s = self._draws(worker, iteration)
        self.outcome.compute_s += compute_s
        self.outcome.computed += 1
        self._queue.add(self._queue.now + compute_s, ("computed", worker))

    def _count(self, worker: int) -> None:
        """Note that `worker` begins one more, and its lead over the slowest worker, in iterations."""
        iteration = self._iterations[worker]
        self.outcome.lead[iteration - self._slowest] += 1
        self._iterations[worker] += 1
        if iteration + 1 == len(self._with):
            self._with.append(0)
        self._with[iteration] -= 1
        self._with[iteration + 1] += 1
        while not self._with[self._slowest]:
            self._slowest += 1

    def _computed(self, worker: int) -> None:
        others = self._partners.get(worker)
        if not others or self._iterations[worker] % self.every:
            self._update(worker)
            return
        # All messages take equally long, so they arrive in the order in which they are sent.
        other = self._partner[worker] = others[int(self._choice.random() * len(others))]
        arrives = self._queue.now + self._message_s
        begins = max(arrives, self._free[other])
        self._free[other] = begins + self._message_s
        self.outcome.comm_s += 2 * self._message_s
        self.outcome.wait_s += begins - arrives
        self._queue.add(begins, ("met", worker))

    def _average(self, worker: int) -> None:
        x, other = self.copies.x, self._partner[worker]
        x[worker] = x[other] = (x[worker] + x[other]) / 2
        self._queue.add(self._queue.now + self._message_s, ("answered", worker))

    def _update(self, worker: int) -> None:
        self.copies.x[worker] -= self._moves[worker]
        self.outcome.staleness[self._finished - self._finished_before[worker]] += 1
        self._finished += 1
        if self._finished * 10 % self.setting.workers < 10:  # ten times a step
            self.copies.look(self._queue.now)
        self._begin(worker)
