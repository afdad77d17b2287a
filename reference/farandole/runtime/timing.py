"""The time of an action that all ranks take together."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from mpi4py import MPI


def slowest_s(mpi: MPI.Intracomm, work: Callable[[], object]) -> float:
    """Return the seconds from a common start until the last rank of the group has done `work`. Collective."""
    mpi.Barrier()
    start = time.perf_counter()
    work()
    seconds = np.array([time.perf_counter() - start])
    mpi.Allreduce(MPI.IN_PLACE, seconds, MPI.MAX)
    return float(seconds[0])
