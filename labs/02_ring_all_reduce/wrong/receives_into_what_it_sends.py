"""In the second round receives into the very chunk that it is sending."""

from __future__ import annotations

import numpy as np

OVERLAP = "would overwrite what has still to leave"
FAILS = {
    "mean": OVERLAP,
    "any length": OVERLAP,
    "same bits": OVERLAP,
    "bytes": OVERLAP,
    "messages": OVERLAP,
    "neighbours": OVERLAP,
    "type": OVERLAP,
}


def ring_all_reduce_mean(gradient, comm):
    rank, size = comm.rank, comm.size
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = np.array_split(gradient, size)
    for step in range(size - 1):
        own = chunks[(rank - step - 1) % size]
        arriving = np.empty_like(own)
        comm.exchange(chunks[(rank - step) % size], right, arriving, left)
        own += arriving
    for step in range(size - 1):
        chunk = chunks[(rank + 1 - step) % size]
        comm.exchange(chunk, right, chunk, left)
    gradient /= size
