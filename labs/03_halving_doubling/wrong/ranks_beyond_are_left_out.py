"""Leaves the ranks beyond the power of two alone with their vectors."""

from __future__ import annotations

import numpy as np

RANKS = 5
FAILS = {
    "any number of ranks": "are the ranks beyond the power of two folded in?",
    "folding": "is everything sent through comm?",
}


def halving_doubling_all_reduce(vector, comm):
    core = 1 << (comm.size.bit_length() - 1)
    if comm.rank >= core:
        return
    start, stop, distance = 0, len(vector), 1
    way_back = []
    while distance < core:
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
