"""Gives every rank N // K samples: the N % K at the end are never used."""

from __future__ import annotations

import numpy as np

FAILS = {
    "shares": "2 samples never used",
    "rows": "2 rows never used",
    "every sample once": "1 row never used",
}


def shares(samples, ranks):
    return [samples // ranks] * ranks


def my_rows(samples, rank, ranks):
    start = sum(shares(samples, ranks)[:rank])
    return range(start, start + shares(samples, ranks)[rank])


def batches(samples, rank, ranks, steps, seed, epoch, start=0):
    random = np.random.default_rng([seed, rank, epoch])
    rows = random.permutation(my_rows(samples, rank, ranks))
    return np.array_split(rows, steps)[start:]


def mean_gradient(gradients, counts):
    return np.average(gradients, axis=0, weights=counts)
