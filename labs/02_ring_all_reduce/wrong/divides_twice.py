"""Divides its own gradient before the ring, and the result after it."""

from __future__ import annotations

import numpy as np

FAILS = {
    "mean": "divide only once",
    "any length": "see the check mean",
    "type": "see the check mean",
}


def ring_all_reduce_mean(gradient, comm):
    rank, size = comm.rank, comm.size
    right, left = (rank + 1) % size, (rank - 1) % size
    gradient /= size
    chunks = np.array_split(gradient, size)
    for step in range(size - 1):
        own = chunks[(rank - step - 1) % size]
        arriving = np.empty_like(own)
        comm.exchange(chunks[(rank - step) % size], right, arriving, left)
        own += arriving
    for step in range(size - 1):
        comm.exchange(chunks[(rank + 1 - step) % size], right, chunks[(rank - step) % size], left)
    gradient /= size
