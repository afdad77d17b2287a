"""Ignores where to go on, and begins the epoch anew."""

from __future__ import annotations

import numpy as np

FAILS = {"restart": "start=1 of 5 steps gives 5 batches"}


def shares(samples, ranks):
    return [samples // ranks + (rank < samples % ranks) for rank in range(ranks)]


def my_rows(samples, rank, ranks):
    start = sum(shares(samples, ranks)[:rank])
    return range(start, start + shares(samples, ranks)[rank])


def batches(samples, rank, ranks, steps, seed, epoch, start=0):
    random = np.random.default_rng([seed, rank, epoch])
    rows = random.permutation(my_rows(samples, rank, ranks))
    return np.array_split(rows, steps)


def mean_gradient(gradients, counts):
    return np.average(gradients, axis=0, weights=counts)
