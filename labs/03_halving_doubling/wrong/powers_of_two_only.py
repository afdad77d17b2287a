"""Does not think of ranks beyond the power of two: some have a partner that does not exist."""

from __future__ import annotations

import numpy as np

RANKS = 5
FAILS = {
    "any number of ranks": "there is no rank",
    "folding": "there is no rank",
}


def halving_doubling_all_reduce(vector, comm):
    start, stop, distance = 0, len(vector), 1
    way_back = []
    while distance < comm.size:
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
