"""Swaps all it has with every partner: the fewest rounds there can be, with the whole vector in each."""

from __future__ import annotations

import numpy as np

FAILS = {
    "bytes": "is the whole vector sent in every round?",
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
    arriving = np.empty_like(vector)
    distance = 1
    while distance < core:
        partner = comm.rank ^ distance
        comm.exchange(vector, partner, arriving, partner)
        vector += arriving
        distance *= 2
    if comm.rank < extra:
        comm.send(vector, comm.rank + core)
