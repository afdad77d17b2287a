"""Counts the end of a share in, so that it is the beginning of the next one too."""

from __future__ import annotations

import numpy as np

FAILS = {
    "rows": "is used by ranks 0 and 1",
    "every sample once": "is used by ranks 0 and 1",
}


def shares(samples, ranks):
    return [samples // ranks + (rank < samples % ranks) for rank in range(ranks)]


def my_rows(samples, rank, ranks):
    start = sum(shares(samples, ranks)[:rank])
    end = start + shares(samples, ranks)[rank]
    return range(start, min(end + 1, samples))


def batches(samples, rank, ranks, steps, seed, epoch, start=0):
    random = np.random.default_rng([seed, rank, epoch])
    rows = random.permutation(my_rows(samples, rank, ranks))
    return np.array_split(rows, steps)[start:]


def mean_gradient(gradients, counts):
    return np.average(gradients, axis=0, weights=counts)
