"""Passes whole vectors on by recursive doubling, and every rank adds up by itself, beginning with its own."""

from __future__ import annotations

import numpy as np

FAILS = {
    "same bits": "in the last bits",
    "bytes": "is the whole vector sent in every round?",
    "memory": "takes memory for",
    "any number of ranks": "in the last bits",
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
    held, distance = vector.copy(), 1
    while distance < core:
        partner, arriving = comm.rank ^ distance, np.empty_like(held)
        comm.exchange(held, partner, arriving, partner)
        held = np.concatenate([held, arriving])
        distance *= 2
    for other in held.reshape(core, -1)[1:]:
        vector += other
    if comm.rank < extra:
        comm.send(vector, comm.rank + core)
