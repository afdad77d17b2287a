"""Which MPI is recognised, and how each is called."""

from __future__ import annotations

from pathlib import Path

import pytest

from farandole.errors import UsageError
from farandole.runtime.mpirun import Mpi, parse_version

HYDRA = """HYDRA build details:
    Version:                                 4.0.2
    Release Date:                            Thu Apr  7 12:34:45 CDT 2022
"""


@pytest.mark.parametrize(
    ("text", "family", "version"),
    [
        ("mpirun (Open MPI) 5.0.11\n\nReport bugs to …", "Open MPI", (5, 0, 11)),
        ("mpirun (Open MPI) 4.1.4\n", "Open MPI", (4, 1, 4)),
        (HYDRA, "MPICH", (4, 0, 2)),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.9 Build 20230307", "MPICH", (2021, 9)),
    ],
)
def test_versions_are_read(text: str, family: str, version: tuple[int, ...]) -> None:
    assert parse_version(text) == (family, version)


def test_an_unknown_mpi_is_refused_with_a_way_out() -> None:
    with pytest.raises(UsageError, match="pip install"):
        parse_version("mpirun by somebody else 1.0")


@pytest.mark.parametrize(
    ("mpi", "expected"),
    [
        (Mpi(Path("mpirun"), "Open MPI", (5, 0, 11), True), "mpirun -n 7 --oversubscribe --with-ft ulfm python x"),
        (Mpi(Path("mpirun"), "Open MPI", (4, 1, 4), False), "mpirun -n 7 --oversubscribe python x"),
        (Mpi(Path("mpiexec"), "MPICH", (4, 0, 2), False), "mpiexec -n 7 python x"),
    ],
)
def test_each_mpi_is_called_its_own_way(mpi: Mpi, expected: str) -> None:
    assert " ".join(mpi.command(7, ["python", "x"])) == expected


def test_the_environment_of_an_enclosing_launch_is_left_behind() -> None:
    outer = {"OMPI_COMM_WORLD_RANK": "3", "PMIX_RANK": "3", "PMI_RANK": "3", "SLURM_JOB_ID": "7", "HOME": "/home/x"}
    inner = Mpi(Path("mpirun"), "Open MPI", (5, 0, 11), True).environment(outer)
    assert "OMPI_COMM_WORLD_RANK" not in inner
    assert "PMIX_RANK" not in inner
    assert "PMI_RANK" not in inner
    assert (inner["SLURM_JOB_ID"], inner["HOME"]) == ("7", "/home/x")
    assert inner["OMPI_ALLOW_RUN_AS_ROOT"] == "1"
