"""The first thing a rank does, and what ends it early; `rank_end` is how it ends in time.

    mpirun -n 4 python -m farandole.runtime PROGRAM [ARG ...]
    mpirun -n 4 python -m farandole.runtime -m MODULE [ARG ...]
    python -m farandole.runtime --as NUMBER …                     a process that comes later (`joining`)
    python -m farandole.runtime --without-mpi …                   a worker of another library, as Horovod's

The launcher starts every program through this module: it sends the rank's output where the
launcher collects it, and turns whatever ends the program early into one report and the end of
the whole job, since a rank that silently leaves would keep all others waiting.
"""

from __future__ import annotations

import gc
import os
import runpy
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from farandole.runtime.failure import EXIT_CODE, Failure, describe
from farandole.runtime.flight_recorder import NO_STEP
from farandole.runtime.rank_end import end, limit_the_end

# Set by the launcher, absent under a plain mpirun.
SCRATCH = "FARANDOLE_RANK_SCRATCH"
LAUNCHER = "FARANDOLE_RANK_LAUNCHER"
LAUNCH = "FARANDOLE_RANK_LAUNCH"
PROGRESS = "FARANDOLE_RANK_PROGRESS"

NUMBER = "FARANDOLE_RANK_NUMBER"  # of a process that joins later, and is rank 0 of another MPI world
WITH_FT = "OMPI_MCA_mpi_ft_enable"  # what `mpirun --with-ft ulfm` of Open MPI gives its ranks
LAUNCHER_ACTS_WITHIN_S = 5.0
START_S = 60  # how long a process that comes later may take until it has met the one that has called it

# How each MPI tells a process its rank before MPI is initialised.
RANK_VARIABLES = (NUMBER, "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")

_program: list[str] = []  # what `run_program` was given


def under_mpirun() -> bool:
    """Return whether an MPI launcher has started this process."""
    return any(name in os.environ for name in RANK_VARIABLES)


def outlive_each_other() -> bool:
    """Return whether this job goes on when one of its processes dies (ULFM): `mpirun --with-ft ulfm` of Open MPI."""
    return os.environ.get(WITH_FT) == "1"


def comes_later() -> bool:
    """Return whether this process was started from within a running job, which it is to join (`joining`)."""
    return NUMBER in os.environ


def own_program() -> list[str]:
    """Return what this process runs, as `run_program` takes it: for another process that is to do the same."""
    if _program:
        return _program
    main = sys.modules["__main__"]
    module = main.__spec__.name if main.__spec__ else None
    return ["-m", module, *sys.argv[1:]] if module else sys.argv


def early_rank() -> int:
    """Return the rank, known before MPI is initialised (0 for a process started alone)."""
    return next((int(os.environ[name]) for name in RANK_VARIABLES if name in os.environ), 0)


def scratch() -> Path | None:
    """Return the launcher's folder for this launch; None without a launcher, or on a host that cannot see it."""
    folder = os.environ.get(SCRATCH)
    return Path(folder) if folder and Path(folder).is_dir() else None


def launcher_pid() -> int | None:
    """Return the launcher's process id, if it runs on this host."""
    host, _, pid = os.environ.get(LAUNCHER, "").partition(":")
    return int(pid) if pid and host == socket.gethostname() else None


def joined(number: int) -> None:
    """Let the launcher know that there is one more process."""
    if folder := scratch():
        (folder / f"{number}.joined").touch()


def departed(ranks: Iterable[int]) -> None:
    """Report to the launcher that these ranks have died, and that the others go on without them."""
    if folder := scratch():
        for number in ranks:
            (folder / f"{number}.departed").touch()


def is_over() -> None:
    """Report to the launcher that training has ended: it ignores failures detected from here on."""
    if folder := scratch():
        (folder / f"{early_rank()}.over").touch()


def progress_columns() -> int:
    """Return the width of the terminal on which this process may draw a progress bar; 0: there is none.

    It is the launcher's terminal, or that of a process started alone.
    """
    alone = sys.stderr.isatty() and not under_mpirun()
    return int(os.environ.get(PROGRESS, "0")) or (shutil.get_terminal_size().columns if alone else 0)


def abort(failure: Failure) -> NoReturn:
    """Leave the report and take the whole job down."""
    if failure.kind == "signal":
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second SIGINT would only interrupt the report
    sys.stdout.flush()
    folder = scratch()
    failure.leave(folder)
    sys.stderr.flush()
    if folder:
        time.sleep(LAUNCHER_ACTS_WITHIN_S)  # it sees the report and ends all ranks; MPI_Abort would print over it
    if "mpi4py.MPI" in sys.modules:
        from mpi4py import MPI

        if not MPI.Is_initialized() or MPI.Is_finalized():
            pass
        elif failure.kind in ("interrupted", "flawed") or not under_mpirun():
            with suppress(ValueError):  # allowed only in the main thread
                limit_the_end()
            MPI.Finalize()  # all ranks have stopped: no rank need be aborted, and MPI has nothing to report
        else:
            MPI.COMM_WORLD.Abort(EXIT_CODE[failure.kind])
    os._exit(EXIT_CODE[failure.kind])


def leave(failure: Failure) -> NoReturn:
    """Report the failure, and end this process alone: the other ranks go on."""
    sys.stdout.flush()
    print(f"farandole: {failure}", file=sys.stderr, flush=True)
    # Open MPI 5.0 does not report a process that merely exits: the other ranks would wait for it.
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("SIGKILL cannot be survived")


def run_rank(work: Callable[[], object]) -> None:
    """Run `work`; whatever it raises ends the whole job with one report."""
    try:
        work()
        gc.freeze()  # at its end Python would look through all of torch for garbage: 0.4 s on every rank
        limit_the_end()
    except SystemExit as leaving:
        if leaving.code in (None, 0):
            raise
        abort(Failure(early_rank(), NO_STEP, "exception", time.time(), f"SystemExit: {leaving.code}"))
    except BaseException as error:
        failure = describe(error, early_rank(), NO_STEP)
        if comes_later():  # the others do not count on it
            leave(failure)
        abort(failure)


def meet_the_caller() -> None:
    """Before anything that takes time, since until then neither side learns of the other one's death."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(START_S)
    from farandole.runtime import joining

    initialise_mpi()
    joining.joining_process()
    signal.alarm(0)


def redirect_output(folder: Path) -> None:
    """Send this process's standard output and error, C libraries' too, to files of the rank."""
    for descriptor, name in ((1, "out"), (2, "err")):
        file = os.open(folder / f"{early_rank()}.{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, descriptor)
        os.close(file)
    # Line by line, so that what a killed rank had printed is there.
    for stream in (sys.stdout, sys.stderr):
        # UTF-8, whatever the terminal's encoding, since the launcher reads UTF-8.
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)  # type: ignore[union-attr]


def initialise_mpi() -> None:
    """Initialise MPI in a process forked from one that has imported it without: elsewhere its import does it."""
    if "mpi4py.MPI" in sys.modules:
        from mpi4py import MPI

        if not MPI.Is_initialized():
            MPI.Init_thread()


def run_program(arguments: list[str], with_mpi: bool = True) -> None:
    """Run a script, or a module after "-m", as ``python`` would, but with the working folder last on the path.

    So the program finds modules in that folder, but a file named like a library, as random.py, does not replace it.

    Args:
        with_mpi: false where no mpirun has started this process: then importing MPI must not initialise it.
    """
    global _program
    _program = [*arguments]
    if with_mpi:
        initialise_mpi()
    else:
        import mpi4py

        mpi4py.rc.initialize = False
    sys.path.append(os.getcwd())
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        if not hasattr(sys.modules.get(arguments[1]), "__path__"):  # of a package, runpy executes another module
            sys.modules.pop(arguments[1], None)  # the fork server has imported it, and runpy would warn of it
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path.insert(0, str(Path(arguments[0]).resolve().parent))
        runpy.run_path(arguments[0], run_name="__main__")


def main() -> None:
    program = sys.argv[1:]
    with_mpi = program[:1] != ["--without-mpi"]
    if not with_mpi:
        program = program[1:]
    elif program[:1] == ["--as"]:
        os.environ[NUMBER], program = program[1], program[2:]
    if folder := scratch():
        redirect_output(folder)
    if comes_later():
        meet_the_caller()
    with suppress(SystemExit):  # of 0; whatever else ends the program early does not come here
        run_rank(lambda: run_program(program, with_mpi))
    if folder:
        (folder / f"{early_rank()}.done").touch()
    end()
