"""Ends one distance too early: it never meets the other half of the ranks."""

from __future__ import annotations

import numpy as np

FAILS = {
    "sum": "lacks the vector of ranks 2 and 3: are its partners at all distances",
    "any length": "see the check sum",
    "same bits": "end with different vectors",
    "bytes": "a half, a quarter, and so on",
    "any number of ranks": "lacks the vector of ranks 2 and 3",
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
    way_back = []
    while distance < core // 2:
        partner, middle = comm.rank ^ distance, (start + stop) // 2
        lower, upper = slice(start, middle), slice(middle, stop)
        kept, given = (upper, lower) if comm.rank & distance else (lower, upper)
        arriving = np.empty_like(vector[kept])
        comm.exchange(vector[given], partner, arriving, partner)
        vector[kept] += arriving
        way_back.append((partner, kept, given))
        start, stop, distance = kept.start, kept.stop, 2 * distance
    for partner, kept, given in reversed(way_back):
        comm.exchange(vector[kept], partner, vector[given], partner)
    if comm.rank < extra:
        comm.send(vector, comm.rank + core)
