"""Passes chunks around a ring, as in lab 2: the fewest bytes, and more messages the more ranks there are."""

from __future__ import annotations

import numpy as np

FAILS = {
    "messages": "where 2·lg P = 4 are enough",
}


def halving_doubling_all_reduce(vector, comm):
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
