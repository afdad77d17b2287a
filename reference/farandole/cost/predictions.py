"""The predicted cost of each of the methods that `sync_cost` compares.

    central       all gradients to one rank and back      E[max of P] + (2P − 3)(α + nβ), 2(α + nβ) for P = 2
    ring          synchronous SGD by a ring               E[max of P] + 2(P − 1)(α + nβ/P)
    overlapped    the same in buckets, during backward    a bucket's ring begins when it and the ring before are done
    large-batch   the ring, with batches H times as large E[max of P, of such a batch]/H + ring/H
    local-sgd     averages after H steps                  E[max of the sums of H]/H + ring/H
    float16       half the bytes                          E[max of P, encoding included] + ring of n/2
    top-k         the largest entries, with feedback      … + (P − 1)(α + 8kβ)
    gossip        averages with two neighbours            only neighbours wait; 2(α + nβ)

All per batch of the same size, so that large batches and small ones compare. P ranks, n bytes of parameters, k entries
sent. The terms in α and β are counted over the steps of each schedule. E[…] is taken from measured computing times, α
and β are measured too (`calibration`); no prediction has seen the run that it predicts. Sources: those of the methods;
the max-plus recursion of gossip, t_i ← max over neighbours t_j + c_i: Baccelli et al., "Synchronization and linearity",
1992.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pkgutil import resolve_name

import numpy as np

from farandole.collectives.costs import Link
from farandole.cost.cost_function import Cost, all_gather_s, all_reduce_s
from farandole.cost.methods import METHODS
from farandole.cost.stragglers import Times
from farandole.decentralised.topologies import topology

DRAWS = 400  # steps that are drawn from the measured ones
LEAST_SUMS = 50  # of local SGD's rounds


@dataclass(frozen=True)
class Calibration:
    """The measurements that are made before anything is predicted.

    Attributes:
        link: between two ranks.
        nbytes: the parameters, and a gradient.
        computing: method → seconds that a step takes without a network, of shape (steps, ranks).
        encoded: compressing method → the bytes that carry a gradient.
        buckets: of `overlapped`, the bytes of each, and seconds from the step's begin until the last rank has it.
        period: steps of one average, and how many times as large a large batch is.
    """

    link: Link
    nbytes: int
    computing: Mapping[str, Times]
    encoded: Mapping[str, int]
    buckets: Sequence[tuple[int, float]]
    period: int

    def drawn(self, method: str, workers: int) -> Times:
        """Draw computing times, shape (steps, workers): worker i has those of rank i mod P, any measured one per step.

        There are `DRAWS` steps; for local SGD at least as many, in whole rounds.
        """
        measured = self.computing[method]
        steps = DRAWS if method != "local-sgd" else self.period * max(LEAST_SUMS, ceil(DRAWS / self.period))
        rng = np.random.default_rng(0)
        rows = rng.integers(len(measured), size=(steps, workers))
        drawn: Times = measured[rows, np.arange(workers) % measured.shape[1]]
        return drawn

    def ring_s(self, workers: int, nbytes: int | None = None) -> float:
        """Return the seconds of a ring all-reduce of the gradient, or of `nbytes`."""
        return all_reduce_s("ring", workers, self.nbytes if nbytes is None else nbytes, self.link)


# Each returns the cost of a batch, from computing times of shape (steps, workers).


def ring(given: Calibration, times: Times) -> Cost:
    return Cost(_slowest(times), given.ring_s(times.shape[1]))


def central(given: Calibration, times: Times) -> Cost:
    """While the last sums leave the root, those ranks that have theirs already send the next gradient."""
    workers = times.shape[1]
    hidden_s = given.link.message_s(given.nbytes) if workers > 2 else 0.0
    return Cost(_slowest(times), all_reduce_s("central", workers, given.nbytes, given.link) - hidden_s)


def overlapped(given: Calibration, times: Times) -> Cost:
    """Only the all-reduces that go on after the last gradient cost time."""
    now = ready = 0.0
    for nbytes, ready in given.buckets:
        now = max(now, ready) + given.ring_s(times.shape[1], nbytes)
    return Cost(_slowest(times), now - ready)


def large_batch(given: Calibration, times: Times) -> Cost:
    return Cost(_slowest(times) / given.period, given.ring_s(times.shape[1]) / given.period)


def local_sgd(given: Calibration, times: Times) -> Cost:
    """A rank is sometimes slow and sometimes fast: over several steps the slowest is less far from the mean."""
    sums = times.reshape(-1, given.period, times.shape[1]).sum(axis=1)
    return Cost(_slowest(sums) / given.period, given.ring_s(times.shape[1]) / given.period)


def float16(given: Calibration, times: Times) -> Cost:
    return Cost(_slowest(times), given.ring_s(times.shape[1], given.encoded["float16"]))


def top_k(given: Calibration, times: Times) -> Cost:
    """All ranks gather all ranks' entries, in a ring."""
    workers = times.shape[1]
    return Cost(_slowest(times), all_gather_s(workers, workers * given.encoded["top-k"], given.link))


def gossip(given: Calibration, times: Times) -> Cost:
    """A message to each neighbour, one after the other."""
    neighbours = sum(source == 0 for source, _ in topology("ring", times.shape[1]).edges(0))
    return Cost(gossip_pace(times), neighbours * given.link.message_s(given.nbytes))


def predicted(method: str, calibration: Calibration, workers: int) -> Cost:
    """Return the seconds that one of `methods.METHODS` takes for a batch.

    Args:
        workers: as many as have been measured, or any other number, as if they were more of the same.
    """
    prediction = resolve_name(METHODS[method].prediction)
    cost: Cost = prediction(calibration, calibration.drawn(method, workers))
    return cost


def efficiency(method: str, calibration: Calibration, workers: int) -> float:
    """Return the part of the speed that waiting and messages leave: at most 1, relative to the mean drawn time."""
    batches = calibration.period if method == "large-batch" else 1  # in one step
    alone_s = float(calibration.drawn(method, workers).mean()) / batches
    return alone_s / predicted(method, calibration, workers).total_s


def gossip_pace(times: Times) -> float:
    """Seconds of a step of (steps, workers) in which each begins when it and its two neighbours have ended theirs."""
    done = np.zeros(times.shape[1])
    for row in times:
        ended = done + row
        done = np.maximum(ended, np.maximum(np.roll(ended, 1), np.roll(ended, -1)))
    return float(done.max()) / len(times)


def _slowest(times: Times) -> float:
    """Return the mean, over all steps, of the slowest worker's time."""
    return float(times.max(axis=1).mean())
