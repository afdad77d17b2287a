"""Which MPI is recognised, and how each is called."""

from __future__ import annotations

from pathlib import Path

import pytest

from farandole.errors import LaunchError, UsageError
from farandole.runtime import mpirun, rank_starter, surroundings
from farandole.runtime.launcher import run_ranks
from farandole.runtime.mpirun import Mpi, has_ulfm, parse_version
from farandole.runtime.placement import Placement
from farandole_tools.forked_ranks.fork_client import ADDRESS

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


@pytest.mark.parametrize(
    ("says", "version", "expected"),
    [
        ("options:ft_mpi_support:yes", (5, 0, 11), True),
        ("options:ft_mpi_support:no", (5, 0, 11), False),
        (None, (5, 0, 11), True),
        ("options:ft_mpi_support:yes", (4, 1, 4), False),
    ],
)
def test_whether_ranks_outlive_each_other_is_asked_of_ompi_info_if_it_is_there(
    says: str | None, version: tuple[int, ...], expected: bool, tmp_path: Path
) -> None:
    if says:
        (tmp_path / "ompi_info").write_text(f"#!/bin/sh\necho {says}\n")
        (tmp_path / "ompi_info").chmod(0o755)
    assert has_ulfm(tmp_path / "mpirun", "Open MPI", version) == expected
    assert not has_ulfm(tmp_path / "mpirun", "MPICH", version)


@pytest.mark.parametrize(
    ("nodes", "outlives", "reads_cards", "given"),
    [
        (1, False, False, True),
        (1, True, False, True),
        (1, False, True, False),
        (1, True, True, True),
        (2, True, False, True),
        (2, False, False, False),
    ],
)
def test_between_hosts_or_cards_only_trainings_that_outlive_ranks_give_up_the_fast_network(
    nodes: int, outlives: bool, reads_cards: bool, given: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ULFM Open MPI sends by ob1 alone: over TCP, without UCX. The mpirun here writes how it is called."""
    (tmp_path / "mpirun").write_text(f'#!/bin/sh\necho "$@" >{tmp_path}/words\n')
    (tmp_path / "mpirun").chmod(0o755)
    monkeypatch.setattr(mpirun, "detect", lambda: Mpi(tmp_path / "mpirun", "Open MPI", (5, 0, 11), True))
    monkeypatch.setattr(surroundings, "nodes", lambda environ: nodes)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LaunchError):
        run_ranks(["x"], 2, outlives=outlives, reads_cards=reads_cards)
    assert ("--with-ft ulfm" in (tmp_path / "words").read_text()) == given


def test_ranks_are_placed_on_hosts_by_open_mpi_5_and_no_other() -> None:
    placement = Placement(["h1", "h2"], "10.77.0.0/24", Path("agent"))
    command = Mpi(Path("mpirun"), "Open MPI", (5, 0, 11), False).command(3, ["python", "x"], placement)
    assert " ".join(command) == "mpirun -n 3 --host h1:2,h2:1 --map-by slot:oversubscribe python x"
    for mpi in (Mpi(Path("mpirun"), "Open MPI", (4, 1, 4), False), Mpi(Path("mpiexec"), "MPICH", (4, 0, 2), False)):
        with pytest.raises(UsageError, match="FARANDOLE_HOSTS is for Open MPI 5, and this is"):
            mpi.command(3, ["python", "x"], placement)


def test_the_environment_of_an_enclosing_launch_is_left_behind() -> None:
    outer = {"OMPI_COMM_WORLD_RANK": "3", "PMIX_RANK": "3", "PMI_RANK": "3", "SLURM_JOB_ID": "7", "HOME": "/home/x"}
    inner = Mpi(Path("mpirun"), "Open MPI", (5, 0, 11), True).environment(outer)
    assert "OMPI_COMM_WORLD_RANK" not in inner
    assert "PMIX_RANK" not in inner
    assert "PMI_RANK" not in inner
    assert (inner["SLURM_JOB_ID"], inner["HOME"]) == ("7", "/home/x")
    assert inner["OMPI_ALLOW_RUN_AS_ROOT"] == "1"


def test_what_the_user_sets_for_mpi_is_kept_but_not_what_an_enclosing_mpirun_has_set() -> None:
    mpi = Mpi(Path("mpirun"), "Open MPI", (5, 0, 11), True)
    settings = {"OMPI_MCA_btl": "self,sm", "PRTE_MCA_prte_if_include": "eth0"}
    inner = mpi.environment(settings)
    assert inner.items() >= settings.items()
    assert inner["OMPI_MCA_btl_tcp_flags"] == "send"
    assert mpi.environment({"OMPI_MCA_btl_tcp_flags": "put"})["OMPI_MCA_btl_tcp_flags"] == "put"
    assert inner["OMPI_MCA_osc"] == "^ucx"
    assert mpi.environment(settings | {"PMIX_RANK": "0"})["OMPI_MCA_btl"] == "^ofi"


def test_ranks_that_do_not_outlive_each_other_have_no_tables_for_agreeing_on_the_dead() -> None:
    mpi = Mpi(Path("mpirun"), "Open MPI", (5, 0, 11), True)
    ended = mpi.between(several_hosts=False, outlives=False)
    assert ended.environment({})["OMPI_MCA_coll"] == "^ftagree"
    assert ended.environment({"OMPI_MCA_coll": "^han"})["OMPI_MCA_coll"] == "^han"
    assert "OMPI_MCA_coll" not in mpi.between(several_hosts=False, outlives=True).environment({})


def test_a_launch_forwards_the_fork_servers_variables_to_its_ranks() -> None:
    """Without these two variables each rank would import torch itself, and nothing else would be wrong."""
    settings = {rank_starter.MODULE: "some.module", ADDRESS: "python:/some/socket"}
    for base in (settings, settings | {"PMIX_RANK": "0"}):
        inner = Mpi(Path("mpirun"), "Open MPI", (5, 0, 11), True).environment(base)
        assert settings.items() <= inner.items()
