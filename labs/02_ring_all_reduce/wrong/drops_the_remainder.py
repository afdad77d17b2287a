"""Cuts P chunks of n // P elements: the n % P elements at the end belong to none."""

from __future__ import annotations

import numpy as np

FAILS = {"any length": "where the remainder of"}


def ring_all_reduce_mean(gradient, comm):
    rank, size = comm.rank, comm.size
    right, left = (rank + 1) % size, (rank - 1) % size
    length = len(gradient) // size
    chunks = [gradient[i * length : (i + 1) * length] for i in range(size)]
    for step in range(size - 1):
        own = chunks[(rank - step - 1) % size]
        arriving = np.empty_like(own)
        comm.exchange(chunks[(rank - step) % size], right, arriving, left)
        own += arriving
    for step in range(size - 1):
        comm.exchange(chunks[(rank + 1 - step) % size], right, chunks[(rank - step) % size], left)
    gradient /= size
