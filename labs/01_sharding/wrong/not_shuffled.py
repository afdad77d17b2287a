"""Uses the rows in their own order."""

from __future__ import annotations

import numpy as np

FAILS = {"shuffled": "uses its rows in their own order"}


def shares(samples, ranks):
    return [samples // ranks + (rank < samples % ranks) for rank in range(ranks)]


def my_rows(samples, rank, ranks):
    start = sum(shares(samples, ranks)[:rank])
    return range(start, start + shares(samples, ranks)[rank])


def batches(samples, rank, ranks, steps, seed, epoch, start=0):
    return np.array_split(np.array(my_rows(samples, rank, ranks)), steps)[start:]


def mean_gradient(gradients, counts):
    return np.average(gradients, axis=0, weights=counts)
