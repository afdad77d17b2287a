"""One clock for all ranks: how far each rank's clock is from rank 0's.

Each rank bounces messages off rank 0. Of the round trip t0 → (rank 0's time) → t1, the shortest
one bounds the error best: rank 0's clock read (t0 + t1) / 2 then, give or take half the trip
(Cristian 1989). On one host all ranks read the same clock and the offset comes out near 0.
"""

from __future__ import annotations

import time

import numpy as np
from mpi4py import MPI

ROUNDS = 8


def offset_to_rank_0(comm: MPI.Intracomm) -> float:
    """Seconds to add to this rank's `time.perf_counter()` to read rank 0's. Collective."""
    stamp = np.zeros(1)
    if comm.rank == 0:
        for rank in range(1, comm.size):
            for _ in range(ROUNDS):
                comm.Recv(stamp, rank)
                stamp[0] = time.perf_counter()
                comm.Send(stamp, rank)
        return 0.0
    trips = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        comm.Send(stamp, 0)
        comm.Recv(stamp, 0)
        end = time.perf_counter()
        trips.append((end - start, float(stamp[0]) - (start + end) / 2))
    return min(trips)[1]
