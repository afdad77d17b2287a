"""Lets rank 0 collect the vectors of all ranks beyond the power of two, and answer all of them."""

from __future__ import annotations

import numpy as np

RANKS = 7
FAILS = {
    "folding": "where 4 for 4 ranks and 2 for those beyond",
}


def halving_doubling_all_reduce(vector, comm):
    core = 1 << (comm.size.bit_length() - 1)
    beyond = range(core, comm.size)
    if comm.rank in beyond:
        comm.send(vector, 0)
        comm.receive(vector, 0)
        return
    if comm.rank == 0:
        for other in beyond:
            arriving = np.empty_like(vector)
            comm.receive(arriving, other)
            vector += arriving
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
    if comm.rank == 0:
        for other in beyond:
            comm.send(vector, other)
