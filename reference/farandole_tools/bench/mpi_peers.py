"""Other MPIs, and each at its best: what ``farandole bench allreduce --peers all`` measures besides.

An MPI chooses the algorithm of an all-reduce by the size of the vector and the number of ranks, and not always well. So
each is measured as it is installed, and with each of its algorithms; for each size the fastest counts. A setting is
read when MPI starts, so each has launches of its own, which alternate with the others.

MPICH and Intel MPI are packages on PyPI. Each is installed once, with pip, in a folder of its own in the user's cache.
mpi4py has a module for their common binary interface: a rank of theirs runs this Python with the same packages, and
finds another libmpi. Intel MPI is tuned for that maker's processors. oneCCL is not among them: no package of it has
an interface for Python.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from farandole.errors import UsageError
from farandole.runtime import mpirun
from farandole.runtime.mpirun import CHOSEN
from farandole.runtime.rank_starter import MODULE
from farandole.runtime.surroundings import cache_folder
from farandole_tools.bench.versions import AS_INSTALLED
from farandole_tools.forked_ranks.fork_client import ADDRESS

TUNED = "Open MPI, tuned"
OPEN_MPIS_ALGORITHMS = (  # of its component "tuned", by number
    "basic linear", "nonoverlapping", "recursive doubling", "ring", "segmented ring", "Rabenseifner",
)  # fmt: skip
OPEN_MPIS_COMPONENTS = ("han", "sm", "xhc", "acoll", "adapt")
MPICHS_ALGORITHMS = ("recursive_doubling", "reduce_scatter_allgather", "ring")
INTELS_ALGORITHMS = {1: "recursive doubling", 2: "Rabenseifner", 7: "Shumilin's ring", 8: "ring"}
MPICH, INTEL_MPI = "mpich==5.0.2", "impi-rt==2021.18.1"
PIP_S = 600


@dataclass(frozen=True)
class Setting:
    """One setting of an MPI.

    Attributes:
        peer: the MPI, as the column is called; and its version.
        tuning: what has been set.
        environment: sets it.
    """

    peer: str
    version: str
    tuning: str
    environment: Mapping[str, str]

    def __str__(self) -> str:
        return f"{self.peer}: {self.tuning}"


def settings() -> list[Setting]:
    """Return every setting that is measured. Installs MPICH and Intel MPI, if they are not there yet.

    Raises:
        UsageError: pip could not install one of them.
    """
    return [*_open_mpis(), *_mpichs(), *_intels()]


def _open_mpis() -> Iterator[Setting]:
    version = str(mpirun.detect())
    for number, name in enumerate(OPEN_MPIS_ALGORITHMS, start=1):
        chosen = {"use_dynamic_rules": "1", "allreduce_algorithm": str(number), "priority": "99"}
        named = {f"OMPI_MCA_coll_tuned_{parameter}": value for parameter, value in chosen.items()}
        yield Setting(TUNED, version, f"tuned, {name}", named)
    for component in OPEN_MPIS_COMPONENTS:
        yield Setting(TUNED, version, component, {f"OMPI_MCA_coll_{component}_priority": "99"})


def _mpichs() -> Iterator[Setting]:
    here, of = _of_another_mpi(_installed(MPICH)), ("MPICH", MPICH.replace("==", " "))
    yield Setting(*of, AS_INSTALLED, here)
    yield Setting(*of, "release_gather", here | {"MPIR_CVAR_ALLREDUCE_POSIX_INTRA_ALGORITHM": "release_gather"})
    for name in MPICHS_ALGORITHMS:
        chosen = {"MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM": name, "MPIR_CVAR_ALLREDUCE_DEVICE_COLLECTIVE": "none"}
        yield Setting(*of, name, here | chosen)


def _intels() -> Iterator[Setting]:
    folder, of = _installed(INTEL_MPI), ("Intel MPI", INTEL_MPI.replace("==", " "))
    here = _of_another_mpi(folder) | {"I_MPI_ROOT": str(folder), "I_MPI_FABRICS": "shm"}
    yield Setting(*of, AS_INSTALLED, here)
    yield Setting(*of, "waits by sched_yield", here | {"I_MPI_THREAD_YIELD": "2"})
    yield Setting(*of, "waits by sleeping", here | {"I_MPI_THREAD_YIELD": "3"})
    for number, name in INTELS_ALGORITHMS.items():
        yield Setting(*of, name, here | {"I_MPI_ADJUST_ALLREDUCE": str(number)})


def _of_another_mpi(folder: Path) -> dict[str, str]:
    """Return the environment of ranks that use the MPI in `folder`, without a fork server: it has loaded another."""
    return {
        CHOSEN: str(folder / "bin" / "mpiexec"),
        "MPI4PY_MPIABI": "mpich",
        "LD_LIBRARY_PATH": os.pathsep.join([str(folder / "lib"), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]),
        ADDRESS: "0",
        MODULE: "",
    }


def _installed(package: str) -> Path:
    """Return the folder in which this package is alone, installed in it the first time."""
    folder = cache_folder() / "peers" / package.replace("==", "-")
    complete = folder / "complete"  # pip may be interrupted
    if not complete.exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--ignore-installed"]
        done = subprocess.run(
            [*command, "--prefix", str(folder), package], capture_output=True, text=True, timeout=PIP_S, check=False
        )
        if done.returncode:
            raise UsageError(f"{package} could not be installed in {folder}: {done.stderr.strip().splitlines()[-1]}")
        complete.touch()
    return folder
