"""Passes whole gradients around once, and every rank adds up by itself, in another order."""

from __future__ import annotations

import numpy as np

FAILS = {
    "same bits": "in the last bits",
    "bytes": "where a ring sends",
    "messages": "where a ring sends",
}


def ring_all_reduce_mean(gradient, comm):
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    passing, arriving = gradient.copy(), np.empty_like(gradient)
    for _ in range(comm.size - 1):
        comm.exchange(passing, right, arriving, left)
        gradient += arriving
        passing, arriving = arriving, passing
    gradient /= comm.size
