"""The simplest parameter server in mpi4py: Send to the server, and Send back.

    mpirun -n 4 python -m farandole_tools.bench.ps_peers.plain_mpi ELEMENTS ROUNDS

Rank 0 is the server, all others are workers, served in rank order.
"""

from __future__ import annotations

import json
import sys
from functools import partial

import numpy as np
from mpi4py import MPI

from farandole.runtime.timing import slowest_s
from farandole_tools.bench import ps_task
from farandole_tools.bench.ps_task import Floats

SERVER = 0


def serve(mpi: MPI.Intracomm, parameters: Floats, total: Floats, received: Floats) -> None:
    """The server's side of a round; `total` and `received` are room to work in."""
    workers = range(1, mpi.size)
    mpi.Recv(total, workers[0])
    for worker in workers[1:]:
        mpi.Recv(received, worker)
        total += received
    ps_task.apply_sum(parameters, total, len(workers))
    for worker in workers:
        mpi.Send(parameters, worker)


def push_and_pull(mpi: MPI.Intracomm, parameters: Floats, gradient: Floats) -> None:
    """A worker's side of a round."""
    mpi.Send(gradient, SERVER)
    mpi.Recv(parameters, SERVER)


def main() -> None:
    elements, rounds = map(int, sys.argv[1:])
    mpi = MPI.COMM_WORLD
    workers = mpi.size - 1
    parameters = np.zeros(elements, dtype=np.float32)
    if mpi.rank == SERVER:
        work = partial(serve, mpi, parameters, np.zeros_like(parameters), np.zeros_like(parameters))
    else:
        work = partial(push_and_pull, mpi, parameters, ps_task.gradient(mpi.rank, elements))
    seconds = []
    for done in range(1, rounds + 1):
        seconds.append(slowest_s(mpi, work))
        ps_task.check(parameters, workers, done, every=ps_task.SAMPLE)
    ps_task.check(parameters, workers, rounds)
    if mpi.rank == SERVER:
        print(json.dumps(seconds))


if __name__ == "__main__":
    main()
