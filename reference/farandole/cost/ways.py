"""The ways of synchronising that one machine measures against its own predictions: what each costs, by formula.

    central       all gradients to one rank and back      E[max of P] + (2P − 3)(α + nβ), 2(α + nβ) for P = 2
    ring          synchronous SGD by a ring               E[max of P] + 2(P − 1)(α + nβ/P)
    overlapped    the same in buckets, during backward    a bucket's ring begins when it and the ring before are done
    large-batch   the ring, with batches H times as large E[max of P, of such a batch]/H + ring/H
    local-sgd     averages after H steps                  E[max of the sums of H]/H + ring/H
    float16       half the bytes                          E[max of P, encoding included] + ring of n/2
    top-k         the largest entries, with feedback      … + (P − 1)(α + 8kβ)
    gossip        averages with two neighbours            only neighbours wait; 2(α + nβ)

All per batch of the same size, so that large batches and small ones compare. P ranks, n bytes of parameters, k entries
sent. E[…] is taken from computing times that have been measured
(`rehearsal`), α and β likewise; nothing here has seen the run that it predicts. Sources: those of the methods; the
max-plus recursion of gossip, t_i ← max over neighbours t_j + c_i: Baccelli et al., "Synchronization and linearity",
1992.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from farandole.collectives.costs import Link
from farandole.cost.cost_function import Cost, all_reduce_s
from farandole.cost.stragglers import Times

WAYS = ("ring", "central", "overlapped", "large-batch", "local-sgd", "float16", "top-k", "gossip")
DRAWS = 400  # steps that are drawn from the measured ones
LEAST_SUMS = 50  # of local SGD's rounds


@dataclass(frozen=True)
class Calibration:
    """What was measured before anything was predicted.

    Attributes:
        link: between two ranks.
        nbytes: the parameters, and a gradient.
        computing: of each way, seconds that a step takes without a network, of shape (steps, ranks).
        encoded: of each way that compresses, the bytes that carry a gradient.
        buckets: of the overlapped way, the bytes of each, and seconds from the step's begin until the last rank has it.
        period: steps of one average, and how many times as large a large batch is.
    """

    link: Link
    nbytes: int
    computing: Mapping[str, Times]
    encoded: Mapping[str, int]
    buckets: Sequence[tuple[int, float]]
    period: int

    def drawn(self, way: str, workers: int) -> Times:
        """Draw computing times, shape (steps, workers): worker i has those of rank i mod P, any measured one per step.

        There are `DRAWS` steps; for local SGD at least as many, in whole rounds.
        """
        measured = self.computing[way]
        steps = DRAWS if way != "local-sgd" else self.period * max(LEAST_SUMS, ceil(DRAWS / self.period))
        rng = np.random.default_rng(0)
        rows = rng.integers(len(measured), size=(steps, workers))
        drawn: Times = measured[rows, np.arange(workers) % measured.shape[1]]
        return drawn


def predicted(way: str, calibration: Calibration, workers: int) -> Cost:
    """Seconds that one of `WAYS` takes for a batch.

    Args:
        workers: as many as have been measured, or any other number, as if they were more of the same.
    """
    link, nbytes, period = calibration.link, calibration.nbytes, calibration.period
    times = calibration.drawn(way, workers)
    slowest = float(times.max(axis=1).mean())
    ring = all_reduce_s("ring", workers, nbytes, link)
    if way == "ring":
        return Cost(slowest, ring)
    if way == "central":
        # While the last sums leave the centre, those who have theirs already send the next gradient.
        hidden = link.message_s(nbytes) if workers > 2 else 0.0
        return Cost(slowest, all_reduce_s("central", workers, nbytes, link) - hidden)
    if way == "overlapped":
        return Cost(slowest, _exposed(calibration, workers))
    if way == "large-batch":
        return Cost(slowest / period, ring / period)
    if way == "local-sgd":
        # Each rank is slow and fast by turns: over several steps the slowest is less far from the mean.
        sums = times.reshape(-1, period, workers).sum(axis=1)
        return Cost(float(sums.max(axis=1).mean()) / period, ring / period)
    if way == "float16":
        return Cost(slowest, all_reduce_s("ring", workers, calibration.encoded[way], link))
    if way == "top-k":
        return Cost(slowest, (workers - 1) * link.message_s(calibration.encoded[way]))
    assert way == "gossip", way
    mixing = min(2, workers - 1) * link.message_s(nbytes)
    return Cost(gossip_pace(times), mixing)


def efficiency(way: str, calibration: Calibration, workers: int) -> float:
    """Return the part of the speed that waiting and messages leave: at most 1, relative to the mean drawn time."""
    batches = calibration.period if way == "large-batch" else 1  # in one step
    alone_s = float(calibration.drawn(way, workers).mean()) / batches
    return alone_s / predicted(way, calibration, workers).total_s


def gossip_pace(times: Times) -> float:
    """Seconds of a step of (steps, workers) in which each begins when it and its two neighbours have ended theirs."""
    done = np.zeros(times.shape[1])
    for row in times:
        ended = done + row
        done = np.maximum(ended, np.maximum(np.roll(ended, 1), np.roll(ended, -1)))
    return float(done.max()) / len(times)


def _exposed(calibration: Calibration, workers: int) -> float:
    """Seconds for which the buckets' all-reduces go on after the last gradient."""
    now = ready = 0.0
    for nbytes, ready in calibration.buckets:
        now = max(now, ready) + all_reduce_s("ring", workers, nbytes, calibration.link)
    return now - ready
