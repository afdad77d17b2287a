"""Memory that all ranks of a host can address, allocated only if there is room for it.

An MPI shared window is a file in memory. It lies in /dev/shm, which is small in containers (64 MB with Docker), or in
the folder that OMPI_MCA_osc_sm_backing_directory names. If it does not fit, MPI reports an internal error, or a rank is
killed when it first touches a missing page. So the free space is compared with the need first.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np
from mpi4py import MPI

from farandole.errors import UsageError
from farandole.runtime import rank, surroundings

PAGE = 4096  # bytes: each part is rounded up to a page, and MPI adds a page for its bookkeeping


def allocate(comm: MPI.Intracomm, size: int, unit: int, instead: str) -> MPI.Win:
    """Allocate a window in which this rank's part has `size` bytes, in elements of `unit` bytes. Collective.

    Args:
        instead: an alternative without shared memory, for the message.

    Raises:
        UsageError: there is too little room; raised on every rank.
    """
    told = np.array([size + 2 * PAGE, 0])
    comm.Allreduce(MPI.IN_PLACE, told, MPI.SUM)
    folder = backing_folder(os.environ)
    if comm.rank == 0:
        told[1] = surroundings.free_bytes(folder)
    comm.Bcast(told)
    needed, free = map(int, told)
    if comm.size > 1 and free < needed:
        raise UsageError(
            f"{folder} has {free:,} bytes free, and the ranks' shared memory needs {needed:,} there: enlarge it (a "
            f"container's: docker run --shm-size=1g), set {surroundings.WINDOWS} to a roomier folder, or use {instead}"
        )
    return MPI.Win.Allocate_shared(size, unit, comm=comm)


def backing_folder(environ: Mapping[str, str], shm: str = "/dev/shm") -> str:
    """The folder for MPI's shared windows: /dev/shm, or if that is not writable, the folder of mpirun's own files."""
    if named := environ.get(surroundings.WINDOWS):
        return named
    return shm if os.access(shm, os.W_OK) else str(rank.scratch() or surroundings.temporary_parent())
