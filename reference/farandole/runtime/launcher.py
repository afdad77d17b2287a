"""The launcher: starts ranks, monitors them, and ends them.

``farandole run``, ``launch(…)`` and the ``%%mpi`` cell all call `run_ranks`. It promises a clean environment, each
rank's output whole and in rank order, and a hard time-out. If one rank fails, all are ended, and the caller receives
that rank's report. Afterwards no process is left.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import IO

from farandole.errors import FlawedLaunch, LaunchError, LaunchInterrupted, UsageError
from farandole.runtime import (
    crowding,
    guard,
    mpirun,
    placement,
    processes,
    rank,
    rank_starter,
    signals,
    streams,
    surroundings,
)
from farandole.runtime.crowding import StartReport
from farandole.runtime.failure import EXIT_CODE, Failure, first_failure
from farandole.runtime.flight_recorder import NO_STEP, read_positions

TIMEOUT_S = 900.0
TIMED_OUT = 124  # as the command `timeout` says it
KILLED = 128 + signal.SIGKILL  # as mpirun says of a rank
POLL_S = 0.05
OTHER_REPORTS_S = 0.5  # after a first failure: how long other ranks have to report theirs
FINALIZE_S = 10.0  # after the last rank's last line: how long MPI has to shut down
FINALIZE_WITHOUT_THE_DEAD_S = 1.0  # the same where a rank has died, for which Open MPI may wait in vain


@dataclass(frozen=True)
class Output:
    """The output of the ranks: one text per rank, in rank order, followed by the ranks that joined later.

    Attributes:
        departed: ranks that have died, and without which the others continued.
    """

    stdout: list[str]
    stderr: list[str]
    departed: frozenset[int] = frozenset()

    def __str__(self) -> str:
        return "".join([*self.stdout, *self.stderr])


class Follower:
    """Copies what rank 0 writes to this process's own streams, as it comes; all ranks' if rank 0 has departed."""

    def __init__(self, scratch: Path, ranks: int, start: StartReport) -> None:
        self.scratch, self.ranks = scratch, ranks
        self.start = start
        self.positions: Counter[Path] = Counter()  # in each file: how much has been copied

    def copy(self) -> None:
        self.start.look()
        for number in _numbers(self.scratch, self.ranks) if (self.scratch / "0.departed").exists() else [0]:
            self._copy(self.scratch / f"{number}.out", sys.stdout)
            self._copy(self.scratch / f"{number}.err", sys.stderr)

    def _copy(self, path: Path, stream: IO[str] | None) -> None:
        if path.exists() and stream:  # without standard streams, Python's are None
            with path.open("rb") as file:
                file.seek(self.positions[path])
                new = file.read()
            self.positions[path] += len(new)
            stream.write(new.decode(errors="replace"))
            stream.flush()


def run_ranks(
    program: Sequence[str],
    ranks: int,
    *,
    timeout_s: float = TIMEOUT_S,
    follow: bool = False,
    progress: bool = False,
    with_torch: bool = True,
    outlives: bool = True,
    reads_cards: bool = False,
    name: str | None = None,
) -> Output:
    """Run a Python program on `ranks` processes and wait for its end.

    Args:
        program: a script and its arguments, or "-m", a module and its arguments.
        timeout_s: seconds after which all processes are ended.
        follow: copy rank 0's output to this process's as it comes; once it has died, the others'.
        progress: let rank 0 draw a progress bar.
        with_torch: false for a program that has no use for torch: then its ranks begin in a new Python without
            it, which is sooner than by `rank_starter`.
        outlives: the program may continue when a rank has died. False, if it cannot: then several hosts use their
            fast network (`Mpi.between`).
        reads_cards: MPI is given the memory of cards, and has to be free in how it sends (`Mpi.between`).
        name: of the program, for messages. [default: its first two words]

    Raises:
        LaunchError: a rank failed, or the time-out passed.
        LaunchInterrupted: Ctrl-C was pressed; the exception carries the ranks' output.
        UsageError: the ranks refused what they were given, or no MPI is installed.
    """
    check(ranks, timeout_s)
    crowding.check_memory(ranks)
    surroundings.check_interpreter()
    mpi, hosts = mpirun.detect(), placement.chosen()
    number = uuid.uuid4().hex
    shared = os.getcwd() if surroundings.nodes(os.environ) > 1 else None
    mpi = mpi.between(several_hosts=bool(hosts or shared), outlives=outlives, reads_cards=reads_cards)
    with signals.held() as held, guard.temporary_folder("farandole-", shared, number) as scratch:
        environment = mpi.environment(surroundings.mended(os.environ), None if shared else scratch) | {
            rank.SCRATCH: str(scratch),
            rank.LAUNCH: number,
            rank.LAUNCHER: f"{socket.gethostname()}:{os.getpid()}",
            rank.PROGRESS: str(_terminal_columns() if progress else 0),
            "COLUMNS": str(streams.columns()),
        }
        # torch's compiler makes its cache as soon as it is imported, by default in a folder that stays.
        environment.setdefault("TORCHINDUCTOR_CACHE_DIR", str(scratch / "torchinductor"))
        if hosts:
            environment |= hosts.environment()
        if hosts or not with_torch:  # what starts ranks sooner is on this host
            environment.pop(rank_starter.MODULE, None)
        if not with_torch:  # numpy's threads spin while they wait for work, which takes half the time of its import
            environment.setdefault("OPENBLAS_NUM_THREADS", "1")
        command = mpi.command(ranks, rank_starter.command(program, environment), hosts)
        own_output = scratch / "launcher"
        follower = (
            Follower(scratch, ranks, StartReport(scratch, ranks, is_here=not (hosts or shared))) if follow else None
        )
        interrupted = False
        with own_output.open("wb") as noise:
            job = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=noise,
                stderr=noise,
                start_new_session=True,
                preexec_fn=processes.end_with_parent,
            )
            try:
                with held.delivered():
                    in_time = _watch(job, ranks, scratch, timeout_s, follower)
            except KeyboardInterrupt:
                interrupted = True
            finally:
                if follower:
                    follower.start.finish()
                _end(job, number)
        output = _collect(scratch, ranks)
        if interrupted:
            raise LaunchInterrupted(str(output))
        if failure := first_failure(scratch):
            raise _as_exception(failure, output)
        if not in_time:
            message = f"{name or ' '.join(program[:2])} was ended after {timeout_s:g} s, its time-out"
            raise LaunchError(message, TIMED_OUT, str(output))
        # Where ranks outlive each other mpirun may end with 0 though all have died.
        nobody_done = not _those(scratch, "done") - _those(scratch, "departed")
        over = _all_done(scratch, ranks) or _those(scratch, "over")
        if not over and (job.returncode or nobody_done):
            all_died = nobody_done and mpi.fault_tolerant and job.returncode in (0, KILLED)
            mpiruns = "" if all_died else own_output.read_text("utf-8", errors="replace").strip()
            steps = _last_steps(scratch)  # of ranks that trained, so MPI did start
            settings = [] if steps else surroundings.mpi_settings(os.environ)
            if cause := surroundings.explain(f"{mpiruns}\n{output}", os.environ, settings):
                raise UsageError(cause)
            said = mpiruns or str(output).strip()
            ended = "all ranks have died" if all_died else f"mpirun ended with {job.returncode}"
            last = f"; the last it said:\n{said[-2000:]}" if said else ""
            perhaps = f"; the environment sets {', '.join(settings)}: try without" if settings else ""
            raise LaunchError(f"{ended}{steps}{perhaps}{last}", 1, str(output))
        return output


def _watch(
    job: subprocess.Popen[bytes], ranks: int, scratch: Path, timeout_s: float, follower: Follower | None
) -> bool:
    """Wait for the job's end or a rank's report of failure; False if the time-out came first.

    The launcher does not rely on mpirun to notice either. Under ULFM neither MPI_Abort nor a rank's
    exit status is certain to end a failed job, since there a job is meant to outlive its ranks. And
    mpirun (Open MPI 5.0) sometimes stays after a program that took only milliseconds.
    """
    deadline = time.monotonic() + timeout_s
    while job.poll() is None and time.monotonic() < deadline:
        if follower:
            follower.copy()
        if any(name.endswith(".failure.json") for name in _files(scratch)):
            deadline = min(deadline, time.monotonic() + OTHER_REPORTS_S)
        elif _all_done(scratch, ranks):
            some_died = bool(_those(scratch, "departed"))
            deadline = min(deadline, time.monotonic() + (FINALIZE_WITHOUT_THE_DEAD_S if some_died else FINALIZE_S))
        processes.wait(job, POLL_S)
    if follower:
        follower.copy()
    return job.poll() is not None or _all_done(scratch, ranks)


def check(ranks: int, timeout_s: float) -> None:
    """Refuse what can be no number of ranks, or no time.

    Raises:
        UsageError: it is not a whole number from 1, or not a number above 0.
    """
    if isinstance(ranks, bool) or not isinstance(ranks, Integral):
        raise UsageError(f"{ranks!r} ranks: give a whole number, 1 or more")
    if ranks < 1:
        raise UsageError(f"{ranks} ranks: give 1 or more")
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, Real) or not timeout_s > 0:
        raise UsageError(f"a time-out of {timeout_s!r} s: give a number above 0")


def _terminal_columns() -> int:
    """Return the width of the terminal that shows the progress bar."""
    with suppress(OSError):
        return os.get_terminal_size(2).columns or streams.columns()
    return streams.columns()


def _all_done(scratch: Path, ranks: int) -> bool:
    """Return whether every rank has ended its program, or has died and the others have continued without it."""
    ended = _those(scratch, "done") | _those(scratch, "departed")
    return ended.issuperset(_numbers(scratch, ranks))


def _numbers(scratch: Path, ranks: int) -> list[int]:
    """Return the numbers of all ranks: the launched ones, then those that joined later."""
    return [*range(ranks), *sorted(_those(scratch, "joined"))]


def _those(scratch: Path, what: str) -> set[int]:
    """Return the ranks for which there is such a report, by themselves or by other ranks (`rank`)."""
    return {int(number) for number, _, kind in (name.partition(".") for name in _files(scratch)) if kind == what}


def _files(scratch: Path) -> list[str]:
    try:
        return os.listdir(scratch)
    except OSError:  # the folder has been removed
        return []


def _end(job: subprocess.Popen[bytes], number: str) -> None:
    if job.poll() is None:
        job.terminate()
    processes.end_all(rank.LAUNCH, number)
    if job.poll() is None:
        job.kill()
    job.wait()


def _collect(scratch: Path, ranks: int) -> Output:
    def texts(suffix: str) -> list[str]:
        files = [scratch / f"{number}.{suffix}" for number in _numbers(scratch, ranks)]
        return [file.read_text("utf-8", errors="replace") if file.exists() else "" for file in files]

    return Output(texts("out"), texts("err"), frozenset(_those(scratch, "departed")))


def _last_steps(scratch: Path) -> str:
    """Where the ranks were, for a job that ended without a report: an MPI without ULFM kills them all."""
    steps = {position.rank: position.step for position in read_positions(scratch) if position.step != NO_STEP}
    return "".join(f", rank {rank} at step {step}" for rank, step in steps.items())


def _as_exception(failure: Failure, output: Output) -> Exception:
    if failure.kind == "usage":
        return UsageError(failure.text)
    kind = FlawedLaunch if failure.kind == "flawed" else LaunchError
    return kind(str(failure), EXIT_CODE[failure.kind], str(output))
