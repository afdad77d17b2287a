"""Counts the chunks of the second round as in the first: unfinished chunks are passed around."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

FAILS = {
    "mean": "is a chunk number off by one?",
    "any length": "see the check mean",
    "type": "see the check mean",
}


def ring_all_reduce_mean(gradient, comm):
    rank, size = comm.rank, comm.size
    right, left = (rank + 1) % size, (rank - 1) % size
    bounds = [len(gradient) * i // size for i in range(size + 1)]
    chunks = [gradient[start:stop] for start, stop in pairwise(bounds)]
    for step in range(size - 1):
        own = chunks[(rank - step - 1) % size]
        arriving = np.empty_like(own)
        comm.exchange(chunks[(rank - step) % size], right, arriving, left)
        own += arriving
    for step in range(size - 1):
        comm.exchange(chunks[(rank - step) % size], right, chunks[(rank - step - 1) % size], left)
    gradient /= size
