"""One rank of a lab's launch: import the submission, run the checks in order, note each outcome.

    python -m farandole.lab.runner LAB SUBMISSION FOLDER LIMIT CHECK [CHECK …]

started by `grading` through the launcher. After each check every rank leaves its outcome in
FOLDER; what they leave is all that the grader sees, so it does not matter how a rank ends.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import numpy as np
import psutil
from mpi4py import MPI

from farandole.lab import labs, learner
from farandole.lab.board import Board
from farandole.lab.communicator import LabCommunicator
from farandole.lab.grading import IMPORT, VERDICT, Kind, Outcome
from farandole.lab.overseer import POLL_S, Overseer
from farandole.runtime import rank
from farandole.runtime.communicator import LOST
from farandole.runtime.failure import PeerLost

MEMORY = 2**30  # bytes a submission may take, per rank
FILE_SIZE = 2**26  # bytes it may write into one file
LAST_RESORT_S = 3.0  # past the limit, when even the overseer cannot act


class Runner:
    """This rank's share of a launch."""

    def __init__(self, submission: Path, folder: Path, limit_s: float) -> None:
        self.world = MPI.COMM_WORLD
        self.submission, self.folder, self.limit_s = submission, folder, limit_s
        self.board = Board(self.world.rank, folder)
        self.overseer = Overseer(
            folder,
            self.world.rank,
            self.world.size,
            self._stop,
            launcher=rank.launcher_pid(),
            file=submission,
            verdict=folder / VERDICT,
        )
        self.comm: LabCommunicator | None = None
        self.stalled = (folder / f"{self.world.rank}.stalled").open("w")
        self.world.Barrier()  # every rank's board is there
        self.overseer.start()

    def phase(self, name: str, work: Callable[[], object]) -> bool:
        """Do `work`, leave its outcome, and once all ranks have done so return whether all passed."""
        learner.hold_output(self.folder / f"{name}.{self.world.rank}.printed")
        self.overseer.begin(self.limit_s)
        # For a loop inside compiled code, which lets no other thread of Python run.
        faulthandler.dump_traceback_later(self.limit_s + LAST_RESORT_S, exit=True, file=self.stalled)
        self.board.computes()
        outcome = Outcome("passed", "")
        try:
            work()
        except BaseException as error:  # the submission's sys.exit, too, is an outcome
            outcome = Outcome(kind_of(error), learner.explain(error, self.submission))
        self._leave(name, outcome)
        self.board.returned()
        passed = np.array([outcome.kind == "passed"])
        self.world.Allreduce(MPI.IN_PLACE, passed, MPI.LAND)
        faulthandler.cancel_dump_traceback_later()
        return bool(passed[0])

    def check(self, check: labs.Check, student: object) -> None:
        # A communicator of its own: what an earlier check left unreceived cannot arrive in this one.
        self.comm = LabCommunicator(self.world.Dup(), self.board)
        check.run(student, self.comm)

    def _leave(self, name: str, outcome: Outcome) -> None:
        unfinished = self.folder / f"{name}.{self.world.rank}.unfinished"
        unfinished.write_text(json.dumps([outcome.kind, outcome.message]))
        unfinished.rename(unfinished.with_suffix(".outcome"))

    def _stop(self, reason: str) -> NoReturn:
        """End the launch; of several ranks that want to, the first one's reason counts."""
        case = f"{self.comm.current_case}: " if self.comm and self.comm.current_case else ""
        with suppress(FileExistsError), (self.folder / VERDICT).open("x", encoding="utf-8") as file:
            file.write(case + reason)
        # Everybody leaves by itself, with 0, this rank last: then mpirun ends in its own time, and nobody
        # has to be killed, which takes the launcher a second or two.
        time.sleep(3 * POLL_S)
        os._exit(0)


def kind_of(error: BaseException) -> Kind:
    if isinstance(error, PeerLost) or (isinstance(error, MPI.Exception) and error.Get_error_class() in LOST):
        return "lost"
    if isinstance(error, NotImplementedError):
        return "not implemented"
    return "wrong" if isinstance(error, labs.Wrong) else "error"


def limit_resources() -> None:
    """An endless list or an endless file becomes an error in the submission, not a full machine."""
    with suppress(AttributeError, ValueError, OSError):  # not every system has every limit
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_SIZE, FILE_SIZE))
        memory = psutil.Process().memory_info().data + MEMORY
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))


def main(arguments: list[str]) -> None:
    lab_folder, submission, folder, limit, *names = arguments
    lab = labs.load(Path(lab_folder))
    runner = Runner(Path(submission), Path(folder), float(limit))
    limit_resources()
    os.chdir(folder)  # files the submission writes go when the folder goes
    student: list[object] = []
    if runner.phase(IMPORT, lambda: student.append(learner.load(runner.submission))):
        for check in lab.checks:
            if check.name in names:
                runner.phase(check.name, lambda check=check: runner.check(check, student[0]))  # type: ignore[misc]
    # Not through Python's own end: threads and exit handlers of the submission could hold it up.
    MPI.Finalize()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
