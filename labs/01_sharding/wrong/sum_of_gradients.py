"""Weighs each gradient by its samples, and forgets to divide by all of them."""

from __future__ import annotations

import numpy as np

FAILS = {
    "mean gradient": "the mean over all samples is",
    "training": "one process on the same rows has",
}


def shares(samples, ranks):
    return [samples // ranks + (rank < samples % ranks) for rank in range(ranks)]


def my_rows(samples, rank, ranks):
    start = sum(shares(samples, ranks)[:rank])
    return range(start, start + shares(samples, ranks)[rank])


def batches(samples, rank, ranks, steps, seed, epoch, start=0):
    random = np.random.default_rng([seed, rank, epoch])
    rows = random.permutation(my_rows(samples, rank, ranks))
    return np.array_split(rows, steps)[start:]


def mean_gradient(gradients, counts):
    return sum(count * gradient for gradient, count in zip(gradients, counts, strict=True))
