"""Sends the whole vector at every hop and uses one chunk of it: the right mean, P times the bytes."""

from __future__ import annotations

import numpy as np

FAILS = {"bytes": "is the whole vector sent at every hop?"}


def ring_all_reduce_mean(gradient, comm):
    rank, size = comm.rank, comm.size
    right, left = (rank + 1) % size, (rank - 1) % size
    bounds = [len(gradient) * i // size for i in range(size + 1)]
    arriving = np.empty_like(gradient)
    for step in range(size - 1):
        comm.exchange(gradient, right, arriving, left)
        chunk = (rank - step - 1) % size
        part = slice(bounds[chunk], bounds[chunk + 1])
        gradient[part] += arriving[part]
    for step in range(size - 1):
        comm.exchange(gradient, right, arriving, left)
        chunk = (rank - step) % size
        part = slice(bounds[chunk], bounds[chunk + 1])
        gradient[part] = arriving[part]
    gradient /= size
