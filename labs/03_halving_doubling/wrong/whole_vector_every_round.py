"""Sends the whole vector in every round and uses the half that it needs."""

from __future__ import annotations

import numpy as np

FAILS = {
    "bytes": "is the whole vector sent in every round?",
    "folding": "bytes where 100,800 are enough",
}


def halving_doubling_all_reduce(vector, comm):
    core = 1 << (comm.size.bit_length() - 1)
    extra = comm.size - core
    if comm.rank >= core:
        comm.send(vector, comm.rank - core)
        comm.receive(vector, comm.rank - core)
        return
    arriving = np.empty_like(vector)
    if comm.rank < extra:
        comm.receive(arriving, comm.rank + core)
        vector += arriving
    start, stop, distance = 0, len(vector), 1
    way_back = []
    while distance < core:
        partner, middle = comm.rank ^ distance, (start + stop) // 2
        lower, upper = slice(start, middle), slice(middle, stop)
        kept, given = (upper, lower) if comm.rank & distance else (lower, upper)
        comm.exchange(vector, partner, arriving, partner)
        vector[kept] += arriving[kept]
        way_back.append((partner, given))
        start, stop, distance = kept.start, kept.stop, 2 * distance
    for partner, given in reversed(way_back):
        comm.exchange(vector, partner, arriving, partner)
        vector[given] = arriving[given]
    if comm.rank < extra:
        comm.send(vector, comm.rank + core)
