"""Our all-reduces and MPI's own, on float32 vectors from 4 KiB to 16 MiB: the program of the ranks.

All are measured in turn, round after round, so that a change in the machine's load meets all alike.
Rank 0 prints the rows as JSON.
"""

from __future__ import annotations

import json
from functools import partial
from statistics import median

import numpy as np
from mpi4py import MPI

from farandole.bench.timing import slowest_s
from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.runtime.communicator import Communicator

SIZES = (4 << 10, 64 << 10, 1 << 20, 16 << 20)
PEER = "mpi"
ROUNDS = 15
WARM_UP = 2


def main() -> None:
    comm = Communicator(MPI.COMM_WORLD)
    rows = []
    for size in SIZES:
        buffer = np.zeros(size // 4, dtype=np.float32)
        times: dict[str, list[float]] = {name: [] for name in ALL_REDUCES}
        for _ in range(WARM_UP + ROUNDS):
            for name, all_reduce in ALL_REDUCES.items():
                times[name].append(slowest_s(comm.mpi, partial(all_reduce, comm, buffer)))
        medians = {name: median(values[WARM_UP:]) for name, values in times.items()}
        for name in ALL_REDUCES:
            if name != PEER:
                peer = {"median_s": medians[PEER], "ratio": medians[PEER] / medians[name]}
                rows.append({"name": name, "size": size, "ranks": comm.size,
                             "median_s": medians[name], "peers": {"MPI_Allreduce": peer}})  # fmt: skip
    if comm.rank == 0:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
