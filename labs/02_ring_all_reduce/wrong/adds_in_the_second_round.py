"""Adds in the second round too, where a finished chunk should take the place of the own one."""

from __future__ import annotations

import numpy as np

FAILS = {
    "mean": "is a sum added to what it contains already?",
    "any length": "see the check mean",
    "same bits": "end with different vectors",
    "type": "see the check mean",
}


def ring_all_reduce_mean(gradient, comm):
    rank, size = comm.rank, comm.size
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = np.array_split(gradient, size)
    for step in range(2 * (size - 1)):
        own = chunks[(rank - step - 1) % size]
        arriving = np.empty_like(own)
        comm.exchange(chunks[(rank - step) % size], right, arriving, left)
        own += arriving
    gradient /= size
