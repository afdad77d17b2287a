"""Adds up in a copy of the vector, and copies the result back at the end."""

from __future__ import annotations

import numpy as np

FAILS = {
    "memory": "takes memory for 1.8 vectors beside its own",
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
    sums = vector.copy()
    start, stop, distance = 0, len(vector), 1
    way_back = []
    while distance < core:
        partner, middle = comm.rank ^ distance, (start + stop) // 2
        lower, upper = slice(start, middle), slice(middle, stop)
        kept, given = (upper, lower) if comm.rank & distance else (lower, upper)
        arriving = np.empty_like(sums[kept])
        comm.exchange(sums[given], partner, arriving, partner)
        sums[kept] += arriving
        way_back.append((partner, kept, given))
        start, stop, distance = kept.start, kept.stop, 2 * distance
    for partner, kept, given in reversed(way_back):
        comm.exchange(sums[kept], partner, sums[given], partner)
    vector[:] = sums
    if comm.rank < extra:
        comm.send(vector, comm.rank + core)
