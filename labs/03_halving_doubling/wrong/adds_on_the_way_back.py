"""Adds on the way back too, where a finished part should take the place of the own one."""

from __future__ import annotations

import numpy as np

FAILS = {
    "sum": "is it added?",
    "any length": "see the check sum",
    "same bits": "end with different vectors",
    "any number of ranks": "is it added?",
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
        comm.exchange(vector[given], partner, arriving, partner)
        vector[kept] += arriving
        way_back.append((partner, kept, given))
        start, stop, distance = kept.start, kept.stop, 2 * distance
    for partner, kept, given in reversed(way_back):
        arriving = np.empty_like(vector[given])
        comm.exchange(vector[kept], partner, arriving, partner)
        vector[given] += arriving
    if comm.rank < extra:
        comm.send(vector, comm.rank + core)
