"""The surroundings of a run: HOME, the folder for temporary files, variables left over from a scheduler or a shell.

Meaningless variables are treated as unset (`mended`), so that the run works. Conditions that would stop the run are
refused before it starts, in one line that names the cause and the remedy. Problems that only mpirun detects are
explained afterwards (`explain`), since its own messages are long and name its source files.
"""

from __future__ import annotations

import errno
import mmap
import os
import pwd
import re
import resource
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from farandole.errors import UsageError

ROOM = 1 << 20  # bytes for temporary files: mpirun's need 0.5 MB with 4 ranks; the ranks' output needs room, too
FILES = 64  # mpirun creates about 15 files with 4 ranks, and each rank a few
THREADS = re.compile(r"\s*[1-9]\d*\s*(,\s*[1-9]\d*\s*)*")  # OMP_NUM_THREADS, a number for each level of nesting
COUNTS = re.compile(r"[1-9][\dx(),]*")  # 4, or node by node 2(x3),1
GENERIC = "JOB_ID"  # Grid Engine's variable, but other programs use this name, too
WINDOWS = "OMPI_MCA_osc_sm_backing_directory"  # where Open MPI keeps shared windows [default: /dev/shm]
MPI_SETTINGS = ("OMPI_MCA_", "PMIX_MCA_", "PRTE_MCA_")


@dataclass(frozen=True)
class Scheduler:
    """A batch system, and the variables that describe its jobs.

    Attributes:
        job: variables that hold the job's number; one is enough.
        hosts: variables that list the job's hosts, or name a file with the list; one is enough.
        counts: variables that hold numbers of nodes or of tasks.
        others: other variables that mpirun reads.
    """

    name: str
    job: tuple[str, ...]
    hosts: tuple[str, ...]
    counts: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    def given(self, environ: Mapping[str, str]) -> list[str]:
        """Return its variables that are set."""
        names = self.job + self.hosts + self.counts + self.others
        return [name for name in names if name in environ and name != GENERIC]

    def number(self, environ: Mapping[str, str]) -> str:
        """Return the job's number; "" if there is none."""
        return next((environ[name] for name in self.job if environ.get(name)), "")

    def has_job(self, environ: Mapping[str, str]) -> bool:
        """Return whether its variables can belong to a job: all are set, counts are numbers, and named files exist."""
        hosts = {name: environ[name] for name in self.hosts if environ.get(name)}
        return (
            self.number(environ)[:1].isdigit()
            and bool(hosts)
            and all(Path(value).is_file() for name, value in hosts.items() if name.endswith("FILE"))
            and all(value.count("[") == value.count("]") for value in hosts.values())
            and all(COUNTS.fullmatch(environ[name]) for name in self.counts if name in environ)
        )


SCHEDULERS = (
    Scheduler(
        "Slurm",
        ("SLURM_JOB_ID", "SLURM_JOBID"),
        ("SLURM_JOB_NODELIST", "SLURM_NODELIST"),
        ("SLURM_JOB_NUM_NODES", "SLURM_NNODES", "SLURM_NTASKS", "SLURM_TASKS_PER_NODE"),
        ("SLURM_CPUS_PER_TASK", "SLURM_STEP_ID", "SLURM_STEPID", "SLURM_PROCID", "SLURM_LOCALID"),
    ),
    Scheduler("PBS", ("PBS_JOBID",), ("PBS_NODEFILE",), others=("PBS_ENVIRONMENT",)),
    Scheduler("Cobalt", ("COBALT_JOBID",), ("COBALT_NODEFILE",)),
    Scheduler("LSF", ("LSB_JOBID",), ("LSB_HOSTS", "LSB_DJOB_HOSTFILE"), others=("LSB_MCPU_HOSTS",)),
    Scheduler("Grid Engine", (GENERIC,), ("PE_HOSTFILE",)),
)


def mended(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for mpirun and the ranks, with meaningless variables removed and HOME added.

    Open MPI does not start without HOME. It is set to the user's home, or to the folder for temporary files if the user
    has no home. Removed are a scheduler's variables that cannot belong to a job, and an OMP_NUM_THREADS that is not a
    number.
    """
    left_out = {name for scheduler in left_over(environ) for name in scheduler.given(environ)}
    if not THREADS.fullmatch(environ.get("OMP_NUM_THREADS", "1")):
        left_out.add("OMP_NUM_THREADS")
    kept = {name: value for name, value in environ.items() if name not in left_out}
    if "HOME" not in kept:
        kept["HOME"] = _home()
    return kept


def nodes(environ: Mapping[str, str]) -> int:
    """Return the number of nodes of this Slurm job; 1 outside of a job."""
    slurm = SCHEDULERS[0]
    return int(environ.get("SLURM_JOB_NUM_NODES", "1").partition("(")[0]) if slurm.has_job(environ) else 1


def temporary_folder(prefix: str, within: str | None = None) -> Path:
    """Create a folder with room for a launch's files.

    Args:
        within: the folder to create it in. [default: the system's for temporary files]

    Raises:
        UsageError: the folder cannot be created, or there is too little room.
    """
    parent = within or temporary_parent()
    if within is None:
        where, cure = f"{parent}, the folder for temporary files,", "set TMPDIR to a folder that has it"
    else:
        where, cure = f"{parent}, which the job's nodes share,", "start from a folder that has it"
    try:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    except OSError as error:
        raise UsageError(f"{where} cannot be written to ({error.strerror}): make room, or {cure}") from error
    try:
        _reserve(folder / "room")
    except OSError as error:
        with suppress(OSError):
            folder.rmdir()
        if error.errno == errno.EFBIG:
            limit = f"a launch needs files of {ROOM:,} bytes, which this shell's ulimit -f forbids: raise it"
            raise UsageError(limit) from error
        raise UsageError(
            f"{where} has {free_bytes(parent):,} bytes free, and a launch needs {ROOM:,} there ({error.strerror}): "
            f"make room, or {cure}"
        ) from error
    system = os.statvfs(parent)
    if system.f_files and system.f_favail < FILES:
        folder.rmdir()
        raise UsageError(
            f"{where} has {system.f_favail} inodes free, and a launch needs {FILES}: remove files there, or {cure}"
        )
    return folder


def temporary_parent() -> str:
    """Return $TMPDIR, or the system's folder for temporary files.

    Raises:
        UsageError: no such folder can be written to.
    """
    try:
        return tempfile.gettempdir()
    except OSError as error:
        raise UsageError(
            "no folder for temporary files can be written to (TMPDIR, /tmp, /var/tmp, this folder): set TMPDIR to one"
        ) from error


def free_bytes(folder: str | Path) -> int:
    """Return how many bytes this user may still write to the file system of `folder`; 0 if there is no such folder."""
    try:
        system = os.statvfs(folder)
    except OSError:
        return 0
    return system.f_bavail * system.f_frsize


def shared_page_bytes(folder: str, mounts: str | None = None, system: Path = Path("/sys/kernel/mm")) -> int:
    """Return the bytes of a page of the files in a folder in memory; pages are huge if it is mounted so.

    Args:
        mounts: what /proc/mounts says; None: it is read.
    """
    kind, options, longest = "", "", ""
    try:
        for line in (mounts or Path("/proc/mounts").read_text(encoding="utf-8")).splitlines():
            _, at, its_kind, its_options, *_ = line.split()
            if Path(folder).is_relative_to(at) and len(at) >= len(longest):
                kind, options, longest = its_kind, its_options, at
        allowed = (system / "transparent_hugepage" / "shmem_enabled").read_text(encoding="ascii")
        huge = int((system / "transparent_hugepage" / "hpage_pmd_size").read_text(encoding="ascii"))
    except (OSError, ValueError):  # a system without huge pages, or that is not Linux
        return mmap.PAGESIZE
    has = "[force]" in allowed or ("huge=always" in options.split(",") and "[deny]" not in allowed)
    return huge if kind == "tmpfs" and has else mmap.PAGESIZE


def cache_folder() -> Path:
    """Return the folder for what is kept from one run to the next, which may not exist yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "farandole"


def check_working_folder() -> None:
    """Check that this process has a working folder.

    Raises:
        UsageError: the working folder no longer exists.
    """
    try:
        os.getcwd()
    except OSError as error:
        raise UsageError("the working folder no longer exists: change into another") from error


def check_interpreter(python: str = sys.executable) -> None:
    """Check that ranks can run the interpreter and have a working folder.

    Raises:
        UsageError: this user may not run the interpreter, or the working folder no longer exists.
    """
    check_working_folder()
    if not os.access(python, os.X_OK):
        raise UsageError(
            f"user {os.geteuid()} may not run {python}, which leads to {os.path.realpath(python)}: "
            "build the environment with a Python that every user may run"
        )


def explain(said: str, environ: Mapping[str, str], settings: Sequence[str] = ()) -> str | None:
    """Return the cause and the remedy of a failed start, if the output `said` of mpirun and the ranks shows them.

    Args:
        settings: those of MPI (`mpi_settings`) that may have kept it from starting.
    """
    if match := re.search(r"Framework:\s*(\S+)\s*Component:\s*(\S+)", said):
        names = [f"{prefix}{match[1]}" for prefix in MPI_SETTINGS]
        variable = next((name for name in names if name in environ), names[0])
        return f"{variable} names {match[2]!r}, which this MPI does not have: unset it, or give another value"
    if "SYS_LIMITS" in said:
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return f"mpirun may have {files} files and pipes open, which are too few: raise the limit with ulimit -n 1024"
    if "No space left on device" in said:
        folder = tempfile.gettempdir()
        return (
            f"mpirun found no room in {folder} ({free_bytes(folder):,} bytes free): set TMPDIR to a folder that has it"
        )
    if any(sign in said for sign in ("srun: ", "ras_", "daemon failed to report", "SLURM_", "Could not resolve")):
        for scheduler in SCHEDULERS:
            if scheduler.has_job(environ):
                hosts = next(environ[name] for name in scheduler.hosts if environ.get(name))
                return (
                    f"mpirun could not start ranks on the hosts of {scheduler.name} job {scheduler.number(environ)} "
                    f"({hosts}): if that job is over, its variables are left over: unset "
                    f"{' '.join(scheduler.given(environ))}"
                )
    if "MPI_Init" in said and settings:
        return f"MPI does not start with what the environment sets, {', '.join(settings)}: unset it"
    return None


def mpi_settings(environ: Mapping[str, str]) -> list[str]:
    """Return MPI's settings from the environment as NAME=value; one of them may have kept MPI from starting."""
    return [f"{name}={value}" for name, value in environ.items() if name.startswith(MPI_SETTINGS)]


def left_over(environ: Mapping[str, str]) -> Iterator[Scheduler]:
    """Yield the schedulers whose variables are set but cannot belong to a job."""
    for scheduler in SCHEDULERS:
        if scheduler.given(environ) and not scheduler.has_job(environ):
            yield scheduler


def _home() -> str:
    with suppress(KeyError):  # a user that the system does not list
        return pwd.getpwuid(os.getuid()).pw_dir
    return tempfile.gettempdir()


def _reserve(file: Path) -> None:
    """Allocate the bytes that a launch needs and free them: this checks quotas and limits as well as free space."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT)
    try:
        os.posix_fallocate(descriptor, 0, ROOM)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):  # others: this file system lacks the call
            raise
    finally:
        os.close(descriptor)
        file.unlink()
