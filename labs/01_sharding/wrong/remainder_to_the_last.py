"""Gives the whole remainder to the last rank, for which all others then wait."""

from __future__ import annotations

import numpy as np

FAILS = {"shares": "spread the remainder"}


def shares(samples, ranks):
    share = samples // ranks
    return [share] * (ranks - 1) + [samples - share * (ranks - 1)]


def my_rows(samples, rank, ranks):
    start = sum(shares(samples, ranks)[:rank])
    return range(start, start + shares(samples, ranks)[rank])


def batches(samples, rank, ranks, steps, seed, epoch, start=0):
    random = np.random.default_rng([seed, rank, epoch])
    rows = random.permutation(my_rows(samples, rank, ranks))
    return np.array_split(rows, steps)[start:]


def mean_gradient(gradients, counts):
    return np.average(gradients, axis=0, weights=counts)
