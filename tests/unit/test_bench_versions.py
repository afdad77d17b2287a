"""The version of each peer in a benchmark's rows."""

from __future__ import annotations

from importlib.metadata import version

from farandole.runtime import mpirun
from farandole_tools.bench import versions


def test_other_systems_have_the_installed_version_and_ours_have_none() -> None:
    of_torch = ("torch DDP", "Gloo", "Schedule1F1B", "torchrun elastic", "import torch")
    of_mpi = ("MPI_Allreduce", "MPI Send and Recv")
    ours = ("our ring", "a copy by each", "4 copies at once", "layer split", "none")
    rows = [{"peers": {name: {} for name in (*of_torch, *of_mpi, *ours)}}, {"peers": {"MPICH": {"version": "5"}}}]
    versions.add_to(rows)
    found = {name: its.get("version") for row in rows for name, its in row["peers"].items()}
    expected = dict.fromkeys(of_torch, f"torch {version('torch')}") | dict.fromkeys(of_mpi, str(mpirun.detect()))
    assert found == {**expected, **dict.fromkeys(ours), "MPICH": "5"}
