"""Cuts batches of one size until the share is used up: ranks differ in their number of steps."""

from __future__ import annotations

import numpy as np

FAILS = {
    "same steps": "the others would wait for it for ever",
    "training": "waits in the all-reduce of step 3; ranks 1, 2 and 3 have returned",
}


def shares(samples, ranks):
    return [samples // ranks + (rank < samples % ranks) for rank in range(ranks)]


def my_rows(samples, rank, ranks):
    start = sum(shares(samples, ranks)[:rank])
    return range(start, start + shares(samples, ranks)[rank])


def batches(samples, rank, ranks, steps, seed, epoch, start=0):
    random = np.random.default_rng([seed, rank, epoch])
    rows = random.permutation(my_rows(samples, rank, ranks))
    size = -(-len(rows) // steps)
    return [rows[begin : begin + size] for begin in range(0, len(rows), size)][start:]


def mean_gradient(gradients, counts):
    return np.average(gradients, axis=0, weights=counts)
