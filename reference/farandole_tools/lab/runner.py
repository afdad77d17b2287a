"""One rank of a lab's launch: import the submission, run the checks in order, note each outcome.

    python -m farandole_tools.lab.runner FOLDER LIMIT

started by `launch` through the launcher. FOLDER/tasks.json lists the submissions, and for each its lab and the names of
the checks. After each check of submission i every rank leaves its outcome in FOLDER/i. What they leave is all that the
grader sees, so it does not matter how a rank ends.
"""

from __future__ import annotations

import faulthandler
import json
import math
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Literal, NoReturn

import numpy as np
import psutil
from mpi4py import MPI

from farandole.runtime import rank
from farandole.runtime.failure import PeerLost
from farandole.runtime.wait import LOST
from farandole_tools.lab import labs, learner
from farandole_tools.lab.communicator import LabCommunicator
from farandole_tools.lab.contained.host import Guest
from farandole_tools.lab.contained.sandbox import FILE_SIZE, MEMORY, Mode
from farandole_tools.lab.deadlock_detector import POLL_S, DeadlockDetector
from farandole_tools.lab.launch import IMPORT, TASKS, VERDICT, Kind, Outcome
from farandole_tools.lab.rank_status import StatusFile

LAST_RESORT_S = 3.0  # past the limit, when even the deadlock detector cannot act


class Runner:
    """This rank's share of a launch."""

    def __init__(self, folder: Path, limit_s: float) -> None:
        self.world = MPI.COMM_WORLD
        self.folder, self.limit_s = folder, limit_s  # where the launch and, later, the submission leave their files
        self.submission = Path()
        self.mpi_failed = False  # in the submission at hand
        self.guest: Guest | None = None  # where it runs, if not here
        self.name, self.printed = IMPORT, 0  # the phase, and what the guest had printed before it
        worker = threading.get_ident()
        self.verdict = folder / VERDICT
        self.status = StatusFile(self.world.rank, folder)
        self.detector = DeadlockDetector(
            folder,
            self.world.rank,
            self.world.size,
            self._stop,
            launcher=rank.launcher_pid(),
            verdict=self.verdict,
            current_line=lambda: (
                self.guest.current_line() if self.guest else learner.current_line(self.submission, worker)
            ),
        )
        self.comm: LabCommunicator | None = None
        self.stalled = (folder / f"{self.world.rank}.stalled").open("w", encoding="utf-8")
        self.world.Barrier()  # every rank's status file is there
        self.detector.start()

    def judge(
        self,
        lab: labs.Lab,
        submission: Path,
        checks: Sequence[str],
        folder: Path,
        mode: Mode | Literal[""] = "",
        helpers: bool = False,
    ) -> bool:
        """Run these checks of a submission; return whether it has left every rank fit for the next one."""
        folder.mkdir(exist_ok=True)
        os.chdir(folder)  # files the submission writes go when the folder goes
        self.submission, self.folder = submission, folder
        self.mpi_failed = False
        threads = threading.active_count()
        student: list[object] = []
        files = (folder / labs.FILES) if lab.shares_files else None
        if files:
            files.mkdir(exist_ok=True)
        if mode:
            place = folder / f"guest-{self.world.rank}"
            self.guest = Guest(mode, place, lab, submission, helpers, self._guest_gone, files)
            self.submission = self.guest.path
        if lab.with_torch:
            import_module("torch._dynamo")  # with torch: seconds, which are not the submission's
        load = self.guest.load if self.guest else lambda: learner.load(submission, lab.harness)
        if self.phase(IMPORT, lambda: student.append(load())):
            for check in lab.checks:
                if check.name in checks:
                    self.phase(check.name, lambda check=check: self.check(check, student[0]))  # type: ignore[misc]
        if self.guest:
            self.guest.end()
        left = threading.active_count() > threads or psutil.Process().children()
        return self._all(not left and not self.mpi_failed)

    def phase(self, name: str, work: Callable[[], object]) -> bool:
        """Do `work`, leave its outcome, and once all ranks have done so return whether all passed."""
        self.name, self.printed = name, self.guest.printed() if self.guest else 0
        learner.hold_output(self._printed())
        self.detector.begin(self.limit_s)
        # For a loop inside compiled code, which lets no other thread of Python run.
        faulthandler.dump_traceback_later(self.limit_s + LAST_RESORT_S, exit=True, file=self.stalled)
        self.status.computes()
        outcome = Outcome("passed", "")
        try:
            work()
        except BaseException as error:  # the submission's sys.exit, too, is an outcome
            outcome = Outcome(kind_of(error), learner.explain(error, self.submission))
            self.mpi_failed |= is_of_mpi(error)
        self._save_printed()
        self._leave(name, outcome)
        self.status.returned()
        passed = self._all(outcome.kind == "passed")
        faulthandler.cancel_dump_traceback_later()
        self.detector.begin(math.inf)  # until the next phase
        return passed

    def _all(self, here: bool) -> bool:
        everywhere = np.array([here])
        self.world.Allreduce(MPI.IN_PLACE, everywhere, MPI.LAND)
        return bool(everywhere[0])

    def check(self, check: labs.Check, student: object) -> None:
        # A new communicator: what an earlier check left unreceived cannot arrive in this one.
        self.comm = LabCommunicator(self.world.Dup(), self.status)
        check.run(student, self.comm)

    def _printed(self) -> Path:
        return self.folder / f"{self.name}.{self.world.rank}.printed"

    def _save_printed(self) -> None:
        if self.guest:
            with suppress(OSError):
                self.guest.save_printed(self.printed, self._printed(), learner.PRINTED_BYTES)

    def _guest_gone(self) -> NoReturn:
        """The submission has ended its process: so does this rank, and leaves no outcome."""
        self._save_printed()
        os._exit(0)

    def _leave(self, name: str, outcome: Outcome) -> None:
        unfinished = self.folder / f"{name}.{self.world.rank}.unfinished"
        unfinished.write_text(json.dumps([outcome.kind, outcome.message]), encoding="utf-8")
        unfinished.rename(unfinished.with_suffix(".outcome"))

    def _stop(self, reason: str) -> NoReturn:
        """End the launch; of several ranks that want to, the first one's reason counts."""
        case = f"{self.comm.current_case}: " if self.comm and self.comm.current_case else ""
        with suppress(FileExistsError), self.verdict.open("x", encoding="utf-8") as file:
            file.write(case + reason)
        self._save_printed()
        # Every rank exits by itself with status 0, this rank last. Then mpirun ends by itself, and the launcher
        # need not kill it, which takes a second or two.
        time.sleep(3 * POLL_S)
        os._exit(0)


def kind_of(error: BaseException) -> Kind:
    if isinstance(error, PeerLost) or (isinstance(error, MPI.Exception) and error.Get_error_class() in LOST):
        return "lost"
    if learner.is_not_implemented(error):
        return "not implemented"
    return "wrong" if isinstance(error, labs.Wrong) else "error"


def limit_resources() -> None:
    """An endless list or an endless file becomes an error in the submission, not a full machine."""
    with suppress(AttributeError, ValueError, OSError):  # not every system has every limit
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_SIZE, FILE_SIZE))
        memory = psutil.Process().memory_info().data + MEMORY
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))


def is_of_mpi(error: BaseException | None) -> bool:
    """Whether an error of MPI is behind `error`."""
    return error is not None and (
        isinstance(error, MPI.Exception) or is_of_mpi(error.__cause__) or is_of_mpi(error.__context__)
    )


def main(arguments: list[str]) -> None:
    folder = Path(arguments[0])
    runner = Runner(folder, float(arguments[1]))
    if not any(mode for *_, mode, _ in json.loads((folder / TASKS).read_text(encoding="utf-8"))):
        limit_resources()
    tasks = json.loads((folder / TASKS).read_text(encoding="utf-8"))
    for number, (lab, submission, checks, mode, helpers) in enumerate(tasks):
        place = folder / str(number)
        if not runner.judge(labs.load(Path(lab)), Path(submission), checks, place, mode, helpers):
            break  # the next one gets new processes
    # Not through Python's own end: threads and exit handlers of the submission could hold it up.
    MPI.Finalize()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
