"""Halves and doubles for a power of two of ranks, and uses a ring for other numbers."""

from __future__ import annotations

import numpy as np

RANKS = 5
FAILS = {
    "folding": "sent 8 messages where 4 for 4 ranks and 2 for those beyond",
}


def halving_doubling_all_reduce(vector, comm):
    rank, size = comm.rank, comm.size
    if size & (size - 1):
        ring(vector, comm)
        return
    start, stop, distance = 0, len(vector), 1
    way_back = []
    while distance < size:
        partner, middle = rank ^ distance, (start + stop) // 2
        lower, upper = slice(start, middle), slice(middle, stop)
        kept, given = (upper, lower) if rank & distance else (lower, upper)
        arriving = np.empty_like(vector[kept])
        comm.exchange(vector[given], partner, arriving, partner)
        vector[kept] += arriving
        way_back.append((partner, kept, given))
        start, stop, distance = kept.start, kept.stop, 2 * distance
    for partner, kept, given in reversed(way_back):
        comm.exchange(vector[kept], partner, vector[given], partner)


def ring(vector, comm):
    rank, size = comm.rank, comm.size
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = np.array_split(vector, size)
    for step in range(size - 1):
        own = chunks[(rank - step - 1) % size]
        arriving = np.empty_like(own)
        comm.exchange(chunks[(rank - step) % size], right, arriving, left)
        own += arriving
    for step in range(size - 1):
        comm.exchange(chunks[(rank + 1 - step) % size], right, chunks[(rank - step) % size], left)
