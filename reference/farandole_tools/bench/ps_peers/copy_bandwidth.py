"""The machine's limit: copying the vector once, in every rank at the same time.

    mpirun -n 4 python -m farandole_tools.bench.ps_peers.copy_bandwidth ELEMENTS ROUNDS

A round of a parameter server cannot be faster than the copies that it makes.
"""

from __future__ import annotations

import json
import sys
from functools import partial

import numpy as np
from mpi4py import MPI

from farandole.runtime.timing import slowest_s
from farandole_tools.bench import ps_task


def main() -> None:
    elements, rounds = map(int, sys.argv[1:])
    mpi = MPI.COMM_WORLD
    source = ps_task.gradient(1, elements)
    target = np.zeros_like(source)
    seconds = [slowest_s(mpi, partial(np.copyto, target, source)) for _ in range(rounds)]
    if mpi.rank == 0:
        print(json.dumps(seconds))


if __name__ == "__main__":
    main()
