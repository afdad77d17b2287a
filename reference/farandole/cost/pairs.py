"""AD-PSGD for many workers: whoever has a gradient averages with one neighbour, event by event.

The rule is the one that runs over MPI (`decentralised.ad_psgd`): `decentralised.pairing` says who asks whom, and
`decentralised.iterations` counts; here is only how long everything takes. A message takes α + nβ, and so does the
answer. A passive worker's thread answers one after the other, whatever else its worker does, and is busy with each
until it is sent:

    active      compute │ question ─→ (others first) mean │ ─→ answer │ update, next
    passive     compute │ update, next                    x ← mean, meanwhile

The mean is atomic: both vectors are as they are in that moment, and the gradient is the one at x when the iteration
began. On the quadratic with noise, the loss is the mean of all workers' own.

Cost: an iteration is one to three events. Source: Lian et al., "Asynchronous decentralized parallel stochastic gradient
descent", 2018.
"""

from __future__ import annotations

from functools import lru_cache
from heapq import heappop, heappush

import numpy as np

from farandole.cost.gossip import Copies, graph_of
from farandole.cost.simulator import CURVATURES, ROWS_OF_NOISE, Draws, Outcome, Setting
from farandole.decentralised.iterations import NONE_LEFT, Iterations
from farandole.decentralised.pairing import Pairing, average_pair, partners

COMPUTED, MET, ANSWERED = range(3)


@lru_cache
def asked(name: str, workers: int) -> dict[int, tuple[int, ...]]:
    """Each active worker of the graph of that name, and the passive ones it may ask."""
    return partners(graph_of(name, workers))


class Pairs:
    """Workers 0 to n − 1, until as many iterations are done as there are gradients.

    Args:
        name: of the graph.
        every: so many iterations of an active worker from one average to the next.
    """

    def __init__(self, setting: Setting, name: str = "ring", every: int = 1) -> None:
        workers = setting.workers
        self.setting = setting
        self.pairing = Pairing(asked(name, workers), every)
        self.iterations = Iterations(workers, setting.steps * workers)
        self.outcome = Outcome(staleness=self.iterations.staleness, lead=self.iterations.lead)
        self.copies, self._draws = Copies(setting, self.outcome), Draws(setting)
        self._message_s = setting.link.alpha + setting.nbytes * setting.link.beta
        self._noise = np.random.default_rng([setting.seed, 1])
        self._choice = np.random.default_rng([setting.seed, 2])
        self._rows, self._row = np.empty((0, len(CURVATURES))), 0
        self._moves = np.empty_like(self.copies.x)  # what each worker's gradient comes to
        self._events: list[tuple[float, int, int, int]] = []  # time, number, kind, worker
        self._now, self._number = 0.0, 0
        self._partner = [0] * workers
        self._free = [0.0] * workers  # when each one's thread will be

    def run(self) -> Outcome:
        for worker in range(self.setting.workers):
            self._begin(worker)
        while self._events:
            self._now, _, kind, worker = heappop(self._events)
            if kind == COMPUTED:
                self._computed(worker)
            elif kind == MET:
                self._average(worker)
            else:
                self._update(worker)
        self.outcome.wall_s, self.outcome.gradients = self._now, self.iterations.finished
        self.copies.finish()
        return self.outcome

    def _at(self, time: float, kind: int, worker: int) -> None:
        self._number += 1
        heappush(self._events, (time, self._number, kind, worker))

    def _begin(self, worker: int) -> None:
        """Take the next iteration, if one is left."""
        iteration = self.iterations.begun_by[worker]
        if self.iterations.begin(worker) == NONE_LEFT:
            return
        if self._row == len(self._rows):
            self._rows, self._row = self._noise.normal(scale=self.setting.noise, size=(ROWS_OF_NOISE, 4)), 0
        self._moves[worker] = self.setting.lr * (CURVATURES * self.copies.x[worker] + self._rows[self._row])
        self._row += 1
        compute_s = self._draws(worker, iteration)
        self.outcome.compute_s += compute_s
        self.outcome.computed += 1
        self._at(self._now + compute_s, COMPUTED, worker)

    def _computed(self, worker: int) -> None:
        other = self.pairing.partner(worker, self.iterations.begun_by[worker], self._choice.random)
        if other is None:
            self._update(worker)
            return
        # All messages take equally long, so they are there in the order in which they are sent.
        self._partner[worker] = other
        there = self._now + self._message_s
        begins = max(there, self._free[other])
        self._free[other] = begins + self._message_s
        self.outcome.comm_s += 2 * self._message_s
        self.outcome.wait_s += begins - there
        self._at(begins, MET, worker)

    def _average(self, worker: int) -> None:
        average_pair(self.copies.x[worker], self.copies.x[self._partner[worker]])
        self._at(self._now + self._message_s, ANSWERED, worker)

    def _update(self, worker: int) -> None:
        self.copies.x[worker] -= self._moves[worker]
        self.iterations.finish(worker)
        if self.iterations.finished * 10 % self.setting.workers < 10:  # ten times a step
            self.copies.look(self._now)
        self._begin(worker)
