"""What a run finds around it: HOME, the folder for temporary files, variables that a scheduler or a shell has left.

What cannot mean anything is taken for unset (`mended`), so that the run works. What would stop the run is refused
before it starts, in one line that names the cause and the cure. What only mpirun can find out is explained when it
has (`explain`): its own messages are long, and name its source files.
"""

from __future__ import annotations

import errno
import os
import pwd
import re
import resource
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from farandole.errors import UsageError

ROOM = 1 << 20  # bytes for temporary files: mpirun's come to 0.5 MB with 4 ranks; beside them lies what ranks print
FILES = 64  # mpirun makes about 15 with 4 ranks, and each rank a few
THREADS = re.compile(r"\s*[1-9]\d*\s*(,\s*[1-9]\d*\s*)*")  # OMP_NUM_THREADS, a number for each level of nesting
COUNTS = re.compile(r"[1-9][\dx(),]*")  # 4, or node by node 2(x3),1
GENERIC = "JOB_ID"  # Grid Engine's, but others give their variables this name, too
WINDOWS = "OMPI_MCA_osc_sm_backing_directory"  # where Open MPI keeps shared windows [default: /dev/shm]
MPI_SETTINGS = ("OMPI_MCA_", "PMIX_MCA_", "PRTE_MCA_")


@dataclass(frozen=True)
class Scheduler:
    """A batch system, and the variables by which its jobs are known.

    Attributes:
        job: the variables that hold the job's number, any of them.
        hosts: those that list the job's hosts, or name the file that does; any of them.
        counts: those that hold numbers: of nodes or of tasks.
        others: what else mpirun reads.
    """

    name: str
    job: tuple[str, ...]
    hosts: tuple[str, ...]
    counts: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    def given(self, environ: Mapping[str, str]) -> list[str]:
        """Those of its variables that are set."""
        names = self.job + self.hosts + self.counts + self.others
        return [name for name in names if name in environ and name != GENERIC]

    def number(self, environ: Mapping[str, str]) -> str:
        """The job's number; "" if there is none."""
        return next((environ[name] for name in self.job if environ.get(name)), "")

    def has_job(self, environ: Mapping[str, str]) -> bool:
        """Whether its variables can be those of a job: all there, numbers where numbers belong, files that exist."""
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
    """The environment for mpirun and the ranks: what cannot hold is left out, and what they cannot do without is there.

    HOME, without which Open MPI does not start, is the user's home, or the folder for temporary files where the
    user has none. Left out are a scheduler's variables that can be of no job, and a number of threads that is none.
    """
    left_out = {name for scheduler in left_over(environ) for name in scheduler.given(environ)}
    if not THREADS.fullmatch(environ.get("OMP_NUM_THREADS", "1")):
        left_out.add("OMP_NUM_THREADS")
    kept = {name: value for name, value in environ.items() if name not in left_out}
    if "HOME" not in kept:
        kept["HOME"] = _home()
    return kept


def nodes(environ: Mapping[str, str]) -> int:
    """On how many nodes this Slurm job runs; 1 outside of a job."""
    slurm = SCHEDULERS[0]
    return int(environ.get("SLURM_JOB_NUM_NODES", "1").partition("(")[0]) if slurm.has_job(environ) else 1


def temporary_folder(prefix: str, within: str | None = None) -> Path:
    """A new folder with room for a launch's files.

    Args:
        within: the folder to make it in. [default: the system's for temporary files]

    Raises:
        UsageError: it cannot be made, or there is no room.
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
            limit = f"no file may grow to {ROOM:,} bytes here, as a launch needs it: raise this shell's ulimit -f"
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
    """The system's folder for temporary files, or $TMPDIR.

    Raises:
        UsageError: there is none that can be written to.
    """
    try:
        return tempfile.gettempdir()
    except OSError as error:
        raise UsageError(
            "no folder for temporary files can be written to (TMPDIR, /tmp, /var/tmp, this folder): set TMPDIR to one"
        ) from error


def free_bytes(folder: str | Path) -> int:
    """What this user may still write into the file system that `folder` lies in; 0 where there is no such folder."""
    try:
        system = os.statvfs(folder)
    except OSError:
        return 0
    return system.f_bavail * system.f_frsize


def check_interpreter(python: str = sys.executable) -> None:
    """Refuse to start ranks that could not start, or would start nowhere.

    Raises:
        UsageError: this user may not run the interpreter, or the working folder is gone.
    """
    try:
        os.getcwd()
    except OSError as error:
        raise UsageError("the folder that this was started in does not exist any more: change into another") from error
    if not os.access(python, os.X_OK):
        raise UsageError(
            f"user {os.geteuid()} may not run {python}, which leads to {os.path.realpath(python)}: "
            "build the environment with a Python that every user may run"
        )


def explain(said: str, environ: Mapping[str, str]) -> str | None:
    """The cause and the cure of a launch that never began, if what mpirun and the ranks `said` shows them."""
    if match := re.search(r"Framework:\s*(\S+)\s*Component:\s*(\S+)", said):
        names = [f"{prefix}{match[1]}" for prefix in MPI_SETTINGS]
        variable = next((name for name in names if name in environ), names[0])
        return f"{variable} names {match[2]!r}, which this MPI does not have: unset it, or give another value"
    if "SYS_LIMITS" in said:
        files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return f"mpirun may have {files} files and pipes open, which are too few: raise it, as by ulimit -n 1024"
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
    if "MPI_Init" in said and (settings := mpi_settings(environ)):
        return f"MPI does not start with what the environment sets, {', '.join(settings)}: unset it"
    return None


def mpi_settings(environ: Mapping[str, str]) -> list[str]:
    """The settings of MPI that come from the environment, as NAME=value: what else may have kept it from starting."""
    return [f"{name}={value}" for name, value in environ.items() if name.startswith(MPI_SETTINGS)]


def left_over(environ: Mapping[str, str]) -> Iterator[Scheduler]:
    """The schedulers whose variables are set and can be of no job."""
    for scheduler in SCHEDULERS:
        if scheduler.given(environ) and not scheduler.has_job(environ):
            yield scheduler


def _home() -> str:
    with suppress(KeyError):  # a user that the system does not list
        return pwd.getpwuid(os.getuid()).pw_dir
    return tempfile.gettempdir()


def _reserve(file: Path) -> None:
    """Write as much as a launch needs, which alone shows quotas and limits as well as space; and remove it."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT)
    try:
        os.posix_fallocate(descriptor, 0, ROOM)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):  # others: this file system has no such call
            raise
    finally:
        os.close(descriptor)
        file.unlink()
