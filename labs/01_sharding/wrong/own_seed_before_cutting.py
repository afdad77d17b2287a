"""Every rank shuffles all rows with a seed of its own, and cuts its share out of that."""

from __future__ import annotations

import numpy as np

FAILS = {"every sample once": "does every rank shuffle all rows with a seed of its own, before cutting?"}


def shares(samples, ranks):
    return [samples // ranks + (rank < samples % ranks) for rank in range(ranks)]


def my_rows(samples, rank, ranks):
    start = sum(shares(samples, ranks)[:rank])
    return range(start, start + shares(samples, ranks)[rank])


def batches(samples, rank, ranks, steps, seed, epoch, start=0):
    random = np.random.default_rng([seed, rank, epoch])
    rows = random.permutation(samples)[my_rows(samples, rank, ranks)]
    return np.array_split(rows, steps)[start:]


def mean_gradient(gradients, counts):
    return np.average(gradients, axis=0, weights=counts)
