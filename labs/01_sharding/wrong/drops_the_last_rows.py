"""Makes all batches of a rank equally long: what is left of its share is never used."""

from __future__ import annotations

import numpy as np

FAILS = {"every sample once": "never used"}


def shares(samples, ranks):
    return [samples // ranks + (rank < samples % ranks) for rank in range(ranks)]


def my_rows(samples, rank, ranks):
    start = sum(shares(samples, ranks)[:rank])
    return range(start, start + shares(samples, ranks)[rank])


def batches(samples, rank, ranks, steps, seed, epoch, start=0):
    random = np.random.default_rng([seed, rank, epoch])
    rows = random.permutation(my_rows(samples, rank, ranks))
    size = len(rows) // steps
    return [rows[step * size : (step + 1) * size] for step in range(start, steps)]


def mean_gradient(gradients, counts):
    return np.average(gradients, axis=0, weights=counts)
