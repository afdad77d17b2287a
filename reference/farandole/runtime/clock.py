"""One clock for all ranks: how far each rank's clock is from rank 0's.

All processes of a host read the same clock, so one rank of each other host finds out for its neighbours. It
bounces messages off rank 0. Of the round trip t0 → (rank 0's time) → t1, the shortest one bounds the error best:
rank 0's clock read (t0 + t1) / 2 then, give or take half the trip (Cristian 1989).
"""

from __future__ import annotations

import socket
import time
from collections.abc import Collection
from pathlib import Path

import numpy as np
from mpi4py import MPI

from farandole.runtime.communicator import all_gather_text

ROUNDS = 8
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")  # Linux: another one for each start of a machine


def offset_to_rank_0(comm: MPI.Intracomm) -> float:
    """Seconds to add to this rank's `time.perf_counter()` to read rank 0's; 0 on rank 0's host. Collective."""
    clocks = all_gather_text(comm, BOOT_ID.read_text(encoding="utf-8") if BOOT_ID.exists() else socket.gethostname())
    firsts = {clocks.index(clock) for clock in clocks}
    offsets = np.empty(comm.size)
    comm.Allgather(np.array([bounce(comm, firsts - {0})]), offsets)
    return float(offsets[clocks.index(clocks[comm.rank])])


def bounce(comm: MPI.Intracomm, ranks: Collection[int]) -> float:
    """Return the offset as messages tell it, on `ranks`, which do not include 0; elsewhere 0. Collective."""
    stamp = np.zeros(1)
    if comm.rank == 0:
        for rank in sorted(ranks):
            for _ in range(ROUNDS):
                comm.Recv(stamp, rank)
                stamp[0] = time.perf_counter()
                comm.Send(stamp, rank)
    if comm.rank not in ranks:
        return 0.0
    trips = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        comm.Send(stamp, 0)
        comm.Recv(stamp, 0)
        end = time.perf_counter()
        trips.append((end - start, float(stamp[0]) - (start + end) / 2))
    return min(trips)[1]
