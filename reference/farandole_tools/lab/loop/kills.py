"""Checks of lab 16 that interrupt a training and have it continued: in one process, and then with a real SIGKILL."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mpi4py import MPI

from farandole.errors import LaunchError
from farandole.runtime.launcher import run_ranks
from farandole_tools.lab import expect
from farandole_tools.lab.collective_calls import CollectiveCommunicator
from farandole_tools.lab.communicator import LabCommunicator
from farandole_tools.lab.contained.host import origin_of
from farandole_tools.lab.expectations import counted
from farandole_tools.lab.labs import FILES
from farandole_tools.lab.loop.rank import Task
from farandole_tools.lab.loop.watch import EVERY, STOPPED_AFTER, Moment, Watch

RANK = "farandole_tools.lab.loop.rank"  # the program of a rank of a real training
REAL_S = 60.0


def check_kill(student: Any, comm: LabCommunicator) -> None:
    if comm.rank == 0:
        rehearse(student, comm, "step", STOPPED_AFTER)
        kill_and_continue(student, comm, (3, 2), 1, "step", STOPPED_AFTER)


def check_unfinished_save(student: Any, comm: LabCommunicator) -> None:
    if comm.rank == 0:
        rehearse(student, comm, "save", STOPPED_AFTER - EVERY)
        kill_and_continue(student, comm, (1, 2), 0, "save", STOPPED_AFTER - EVERY)


def rehearse(student: Any, comm: LabCommunicator, moment: Moment, saved: int) -> None:
    """Interrupt a training without a kill, and have it continued: what is wrong already here needs no launch."""
    folder = str(Path(FILES, f"rehearsal-{moment}").resolve())
    calls = CollectiveCommunicator(LabCommunicator(MPI.Intracomm(MPI.COMM_SELF.Dup())))
    when = f"one process, interrupted after {STOPPED_AFTER} steps" + ", while it saves" * (moment == "save")
    with comm.case(when):
        watch = Watch(0, interrupts=moment)
        student.train(0, calls, folder, EVERY, watch)
        problem = watch.problem if watch.stopped else watch.verdict()
        expect(not problem, problem)
        never = f"torch.save(state, file) is not called after {STOPPED_AFTER} steps, a multiple of {EVERY}"
        expect(watch.stopped, never)
    with comm.case(f"{when}{', half of the file is there' * (moment == 'save')}; then started again"):
        watch = Watch(0, saved)
        student.train(100, calls, folder, EVERY, watch)
        verdict = watch.verdict()
        expect(not verdict, verdict)


def kill_and_continue(
    student: Any, comm: LabCommunicator, sizes: tuple[int, int], number: int, moment: Moment, saved: int
) -> None:
    """Kill a real process of a training, and have it continued; `sizes` says by how many processes each."""
    size, then = sizes
    what = f"{counted(size, 'process', 'processes')}, SIGKILL to rank {number} after {STOPPED_AFTER} steps"
    what += ", while it saves" * (moment == "save")
    folder = Path(f"kill-{moment}").resolve()
    folder.mkdir()
    with comm.case(what):
        wrong, ended = launch(student, folder / "first", size, moment, 0, number)
        expect(not wrong, wrong)
        expect((folder / "first" / "killed").exists(), ended or "the training has ended before")
    with comm.case(f"{what}; then started again with {then}"):
        wrong, ended = launch(student, folder / "second", then, moment, saved)
        expect(not wrong and not ended, wrong or ended)


def launch(
    student: Any, folder: Path, size: int, moment: Moment, first: int, killed: int | None = None
) -> tuple[str, str]:
    """Train on `size` processes; return what was wrong on the first rank with a problem, and how the launch failed.

    Args:
        folder: what the ranks leave for the checks.
        first: the number of steps after which the training should continue.
        killed: the rank that is killed.
    """
    folder.mkdir()
    files = Path(FILES).resolve()
    task = Task(origin_of(student), str(files), str(files / f"kill-{moment}"), first, moment, killed)
    ended = ""
    try:
        run_ranks(["-m", RANK, str(folder), json.dumps(task)], size, timeout_s=REAL_S)
    except LaunchError as error:
        ended = error.message.strip().splitlines()[0]
    return first_wrong([json.loads(path.read_text("utf-8")) for path in folder.glob("*.verdict")]), ended


def first_wrong(verdicts: Sequence[Sequence[Any]]) -> str:
    """Return the text of the earliest verdict that has one, of the lowest rank among several."""
    wrong = sorted(tuple(each) for each in verdicts if each[-1])
    return str(wrong[0][-1]) if wrong else ""
