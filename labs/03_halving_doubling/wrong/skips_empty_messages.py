"""Sends nothing where there is nothing to send, and the partner takes its next message for the missing one."""

from __future__ import annotations

import numpy as np

FAILS = {
    "any length": "length 3: ValueError: the message from rank 2 has more bytes than the 0",
    "any number of ranks": "has more bytes than the 0",
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
        if len(vector[given]):
            comm.exchange(vector[given], partner, arriving, partner)
        vector[kept] += arriving
        way_back.append((partner, kept, given))
        start, stop, distance = kept.start, kept.stop, 2 * distance
    for partner, kept, given in reversed(way_back):
        comm.exchange(vector[kept], partner, vector[given], partner)
    if comm.rank < extra:
        comm.send(vector, comm.rank + core)
