"""Stops when the sums are finished: every rank has one of the finished chunks, and keeps it."""

from __future__ import annotations

import numpy as np

FAILS = {
    "mean": "have still to be passed around the ring",
    "any length": "see the check mean",
    "same bits": "end with different vectors",
    "bytes": "that is one round",
    "messages": "where a ring sends",
    "type": "see the check mean",
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
    gradient /= size
