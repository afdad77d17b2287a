"""Returns the mean in a new array and leaves the gradient itself as it was."""

from __future__ import annotations

import numpy as np

FAILS = {
    "mean": "is the result written into the array itself",
    "any length": "see the check mean",
    "same bits": "end with different vectors",
    "type": "see the check mean",
}


def ring_all_reduce_mean(gradient, comm):
    rank, size = comm.rank, comm.size
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = [chunk.copy() for chunk in np.array_split(gradient, size)]
    for step in range(size - 1):
        own = chunks[(rank - step - 1) % size]
        arriving = np.empty_like(own)
        comm.exchange(chunks[(rank - step) % size], right, arriving, left)
        own += arriving
    for step in range(size - 1):
        comm.exchange(chunks[(rank + 1 - step) % size], right, chunks[(rank - step) % size], left)
    return np.concatenate(chunks) / size
