"""A run's environment: unusable settings are ignored, and an obstacle is reported in one line."""

from __future__ import annotations

import mmap
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from farandole.errors import UsageError
from farandole.runtime import mpirun, placement, rank_starter, surroundings
from farandole_tools.doctor import checks
from farandole_tools.forked_ranks import fork_client, fork_server

SLURM = {
    "SLURM_JOB_ID": "77",
    "SLURM_JOBID": "77",
    "SLURM_JOB_NODELIST": "n[1-3]",
    "SLURM_JOB_NUM_NODES": "3",
    "SLURM_TASKS_PER_NODE": "2(x2),1",
}


def test_a_home_is_found_for_open_mpi_which_does_not_start_without(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Path(surroundings.mended({})["HOME"]).is_absolute()
    assert surroundings.mended({"HOME": "/home/x"})["HOME"] == "/home/x"

    def unlisted(_: int) -> None:
        raise KeyError

    monkeypatch.setattr("pwd.getpwuid", unlisted)  # a container's user 12345
    assert surroundings.mended({})["HOME"] == tempfile.gettempdir()


@pytest.mark.parametrize(
    "broken",
    [
        {"SLURM_JOB_ID": "", "SLURM_JOBID": ""},
        {"SLURM_JOB_NODELIST": ""},
        {"SLURM_JOB_NODELIST": "n[1-3"},
        {"SLURM_JOB_NUM_NODES": ""},
        {"SLURM_JOB_NUM_NODES": "abc"},
        {"SLURM_TASKS_PER_NODE": "many"},
    ],
)
def test_variables_that_can_be_of_no_slurm_job_are_left_out(broken: dict[str, str]) -> None:
    environ = {"SLURM_CONF": "/etc/slurm.conf"} | SLURM | broken
    assert {name for name in surroundings.mended(environ) if name.startswith("SLURM_")} == {"SLURM_CONF"}
    assert surroundings.nodes(environ) == 1


def test_those_of_a_slurm_job_stay() -> None:
    assert SLURM.items() <= surroundings.mended(SLURM).items()
    assert surroundings.nodes(SLURM) == 3


@pytest.mark.parametrize(
    ("job", "hosts"), [("PBS_JOBID", "PBS_NODEFILE"), ("COBALT_JOBID", "COBALT_NODEFILE"), ("JOB_ID", "PE_HOSTFILE")]
)
def test_a_job_whose_list_of_hosts_is_gone_is_over(job: str, hosts: str, tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("n1\n")
    environ = {job: "5.server", hosts: str(file)}
    assert environ.items() <= surroundings.mended(environ).items()
    file.unlink()
    assert hosts not in surroundings.mended(environ)
    assert surroundings.mended({"JOB_ID": "5"})["JOB_ID"] == "5"  # of something else


@pytest.mark.parametrize(
    ("threads", "kept"), [("4", True), ("4,2", True), ("", False), ("0", False), ("-1", False), ("abc", False)]
)
def test_a_number_of_threads_that_is_none_is_left_out(threads: str, kept: bool) -> None:
    assert ("OMP_NUM_THREADS" in surroundings.mended({"OMP_NUM_THREADS": threads})) == kept


@pytest.mark.parametrize(
    ("said", "environ", "expected"),
    [
        (
            "Host: vm\nFramework: btl\nComponent: nonsense\n---",
            {"OMPI_MCA_btl": "nonsense"},
            "OMPI_MCA_btl names 'nonsense', which this MPI does not have: unset it, or give another value",
        ),
        (
            "srun: error: fetch_config: DNS SRV lookup failed\nA daemon failed to report back",
            SLURM,
            "mpirun could not start ranks on the hosts of Slurm job 77 (n[1-3]): if that job is over, its variables "
            "are left over: unset SLURM_JOB_ID SLURM_JOBID SLURM_JOB_NODELIST SLURM_JOB_NUM_NODES SLURM_TASKS_PER_NODE",
        ),
        (
            "*** An error occurred in MPI_Init_thread",
            {"OMPI_MCA_pml": "nonsense", "HOME": "/"},
            "MPI does not start with what the environment sets, OMPI_MCA_pml=nonsense: unset it",
        ),
        (
            "PMIX ERROR: PMIX_ERR_SYS_LIMITS_PIPES in file iof_base_setup.c",
            {},
            f"mpirun may have {resource.getrlimit(resource.RLIMIT_NOFILE)[0]} files and pipes open, which are too few: "
            "raise the limit with ulimit -n 1024",
        ),
        ("*** An error occurred in MPI_Init_thread", {}, None),
        ("Segmentation fault", SLURM, None),
    ],
)
def test_what_mpirun_says_at_length_is_explained_in_a_line(
    said: str, environ: dict[str, str], expected: str | None
) -> None:
    assert surroundings.explain(said, environ, surroundings.mpi_settings(environ)) == expected


def test_settings_are_not_blamed_once_ranks_have_trained() -> None:
    """A process that is requested later may not return from MPI_Init if the coordinator has died meanwhile."""
    assert surroundings.explain("*** An error occurred in MPI_Init_thread", {"OMPI_MCA_pml": "ob1"}) is None


def test_a_folder_without_room_is_refused_with_what_it_has_and_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = surroundings.temporary_folder("farandole-")
    assert made.parent == tmp_path
    assert not list(made.iterdir())
    made.rmdir()

    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(UsageError, match=rf"{tmp_path}.* bytes free, and a launch needs 1,048,576 there.* set TMPDIR"):
        surroundings.temporary_folder("farandole-")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(UsageError, match=r"missing, the folder for temporary files, cannot be written to .*set TMPDIR"):
        surroundings.temporary_folder("farandole-")

    def none() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    with pytest.raises(UsageError, match="no folder for temporary files can be written to"):
        surroundings.temporary_folder("farandole-")


def test_a_folder_that_is_gone_and_an_interpreter_that_may_not_run_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "python"
    python.touch(mode=0o644)
    with pytest.raises(UsageError, match=f"user {os.geteuid()} may not run {python}"):
        surroundings.check_interpreter(str(python))
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(UsageError, match="no longer exists: change into another"):
        surroundings.check_interpreter()


@pytest.mark.parametrize(
    ("chosen", "what"),
    [("/nonexistent", "No such file"), ("/usr", "Permission denied"), ("true", "no MPI known here: mpirun --version")],
)
def test_a_chosen_mpirun_that_is_none_is_named_with_the_variable(
    chosen: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FARANDOLE_MPIRUN", chosen)
    mpirun.detect.cache_clear()
    with pytest.raises(UsageError, match=f"{what}.*: unset FARANDOLE_MPIRUN, or let it name an MPI's mpirun"):
        mpirun.detect()


def test_hosts_that_are_none_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(placement.HOSTS, str(tmp_path))
    for text in ("", "{}", "[]", '{"names": []}'):
        (tmp_path / "hosts.json").write_text(text)
        with pytest.raises(UsageError, match="where no hosts are"):
            placement.chosen()


def test_a_users_files_beside_the_run_take_no_librarys_place(tmp_path: Path) -> None:
    names = ["random", "queue", "numpy", "platform", "secrets", "statistics"]
    for name in names:
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong one')\n")
    (tmp_path / "own.py").write_text("found = 'own'\n")
    code = f"import own, {', '.join(names)}; print(own.found)"
    command = [sys.executable, "-m", "farandole.runtime.snippet", code]
    shown = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert shown.stdout == "own\n", shown.stderr


MOUNTS = """\
/dev/vda / ext4 rw,relatime 0 0
tmpfs /dev/shm tmpfs rw,nosuid,nodev{shm} 0 0
none /mnt/huge tmpfs rw,huge=always,size=4194304k 0 0
none /mnt/asked tmpfs rw,huge=advise 0 0
"""


@pytest.mark.parametrize(
    ("folder", "shm", "allowed", "huge"),
    [
        ("/dev/shm", "", "advise [never] deny force", False),
        ("/dev/shm", ",huge=always", "advise [never] deny force", True),
        ("/dev/shm/of a user", ",huge=always", "advise [never] deny force", True),
        ("/dev/shm", ",huge=always", "advise never [deny] force", False),
        ("/dev/shm", "", "advise never deny [force]", True),
        ("/mnt/huge", "", "advise [never] deny force", True),
        ("/mnt/huge2", "", "advise [never] deny [force]", False),
        ("/mnt/asked", "", "advise [never] deny force", False),
        ("/tmp", "", "advise [never] deny force", False),
    ],
)
def test_the_size_of_a_page_of_shared_memory(folder: str, shm: str, allowed: str, huge: bool, tmp_path: Path) -> None:
    settings = tmp_path / "transparent_hugepage"
    settings.mkdir()
    mounts = MOUNTS.format(shm=shm)
    assert surroundings.shared_page_bytes(folder, mounts, tmp_path) == mmap.PAGESIZE, "a kernel without them"
    (settings / "shmem_enabled").write_text(f"always within_size {allowed}\n")
    (settings / "hpage_pmd_size").write_text("2097152\n")
    assert surroundings.shared_page_bytes(folder, mounts, tmp_path) == (2097152 if huge else mmap.PAGESIZE)


def test_a_system_without_proc_has_pages_of_the_usual_size(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(path: Path, encoding: str) -> str:
        raise FileNotFoundError(path)

    monkeypatch.setattr(Path, "read_text", missing)
    assert surroundings.shared_page_bytes("/dev/shm") == mmap.PAGESIZE


def test_the_doctor_reports_what_is_odd_and_how_to_mend_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(checks, "SHM", str(tmp_path / "missing"))
    for scheduler in surroundings.SCHEDULERS:
        for name in scheduler.given(os.environ):
            monkeypatch.delenv(name)
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "abc")
    monkeypatch.setenv("OMPI_MCA_pml", "ob1")
    findings = {finding.name: finding for finding in checks.environment()}
    assert findings["temporary files"].works
    assert str(tmp_path) in findings["temporary files"].seen
    assert not findings["shared memory"].works
    assert findings["left-over variables"].mend == "unset SLURM_JOB_NUM_NODES"
    assert "OMPI_MCA_pml=ob1" in findings["MPI settings"].seen


def test_the_doctor_gives_the_cure_that_fits_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FARANDOLE_MPIRUN", "/nonexistent")
    mpirun.detect.cache_clear()
    [finding] = checks.mpi()
    assert finding.seen == "/nonexistent cannot be run (No such file or directory)"
    assert finding.mend == "unset FARANDOLE_MPIRUN, or let it name an MPI's mpirun"


@pytest.mark.parametrize("folder", ["a" * 120, "missing/folder"])
def test_without_a_place_for_its_socket_there_is_no_warm_process(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ("a" * 120)).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / folder))
    for name in (fork_client.ADDRESS, rank_starter.MODULE):
        monkeypatch.delenv(name, raising=False)
    fork_server.start()
    assert not {fork_client.ADDRESS, rank_starter.MODULE} & os.environ.keys()
    assert not list((tmp_path / ("a" * 120)).iterdir())
