"""Draws from one generator that runs on from call to call: a run that is restarted gets other batches."""

from __future__ import annotations

import numpy as np

FAILS = {"restart": "the same call twice gives two orders"}


random = np.random.default_rng(0)


def shares(samples, ranks):
    return [samples // ranks + (rank < samples % ranks) for rank in range(ranks)]


def my_rows(samples, rank, ranks):
    start = sum(shares(samples, ranks)[:rank])
    return range(start, start + shares(samples, ranks)[rank])


def batches(samples, rank, ranks, steps, seed, epoch, start=0):
    rows = random.permutation(my_rows(samples, rank, ranks))
    return np.array_split(rows, steps)[start:]


def mean_gradient(gradients, counts):
    return np.average(gradients, axis=0, weights=counts)
