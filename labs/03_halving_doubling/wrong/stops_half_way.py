"""Stops when the sums are finished: every rank has a part of them, and keeps it."""

from __future__ import annotations

import numpy as np

FAILS = {
    "sum": "has the sum of 1 of 4 elements: the others' finished parts have still to come",
    "any length": "see the check sum",
    "same bits": "end with different vectors",
    "bytes": "that is the way there",
    "any number of ranks": "the others' finished parts have still to come",
}


def halving_doubling_all_reduce(vector, comm):
    core = 1 << (comm.size.bit_length() - 1)
    extra = comm.size - core
    if comm.rank >= core:
        comm.send(vector, comm.rank - core)
        comm.receive(vector, comm.rank - core)
        return
    if comm.rank < extra:
        arriving = np.empty_like(vector)
        comm.receive(arriving, comm.rank + core)
        vector += arriving
    start, stop, distance = 0, len(vector), 1
    while distance < core:
        partner, middle = comm.rank ^ distance, (start + stop) // 2
        lower, upper = slice(start, middle), slice(middle, stop)
        kept, given = (upper, lower) if comm.rank & distance else (lower, upper)
        arriving = np.empty_like(vector[kept])
        comm.exchange(vector[given], partner, arriving, partner)
        vector[kept] += arriving
        start, stop, distance = kept.start, kept.stop, 2 * distance
    if comm.rank < extra:
        comm.send(vector, comm.rank + core)
