"""Goes one rank farther in every round, instead of twice as far: the same up to 7 ranks."""

from __future__ import annotations

import numpy as np

RANKS = 8
FAILS = {
    "sum": "do both partners halve the same part",
    "same bits": "end with different vectors",
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
    start, stop = 0, len(vector)
    way_back = []
    for distance in range(1, core.bit_length()):
        partner, middle = comm.rank ^ distance, (start + stop) // 2
        lower, upper = slice(start, middle), slice(middle, stop)
        kept, given = (upper, lower) if comm.rank > partner else (lower, upper)
        arriving = np.empty_like(vector[kept])
        comm.exchange(vector[given], partner, arriving, partner)
        vector[kept] += arriving
        way_back.append((partner, kept, given))
        start, stop = kept.start, kept.stop
    for partner, kept, given in reversed(way_back):
        comm.exchange(vector[kept], partner, vector[given], partner)
    if comm.rank < extra:
        comm.send(vector, comm.rank + core)
