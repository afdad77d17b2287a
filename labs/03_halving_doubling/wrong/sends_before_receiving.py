"""Every rank sends first and receives afterwards: nobody receives, and all wait for ever."""

from __future__ import annotations

import numpy as np

DEADLOCK = "all wait in send: nobody receives"
FAILS = {
    "sum": DEADLOCK,
    "any length": DEADLOCK,
    "same bits": DEADLOCK,
    "messages": DEADLOCK,
    "bytes": DEADLOCK,
    "memory": DEADLOCK,
    "any number of ranks": DEADLOCK,
    "folding": DEADLOCK,
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
    while distance < core:
        partner, middle = comm.rank ^ distance, (start + stop) // 2
        lower, upper = slice(start, middle), slice(middle, stop)
        kept, given = (upper, lower) if comm.rank & distance else (lower, upper)
        arriving = np.empty_like(vector[kept])
        comm.send(vector[given], partner)
        comm.receive(arriving, partner)
        vector[kept] += arriving
        way_back.append((partner, kept, given))
        start, stop, distance = kept.start, kept.stop, 2 * distance
    for partner, kept, given in reversed(way_back):
        comm.send(vector[kept], partner)
        comm.receive(vector[given], partner)
    if comm.rank < extra:
        comm.send(vector, comm.rank + core)
