"""One rank of a training of lab 16 that is killed or continued: the checks' side of it, which judges.

    python -m farandole_tools.lab.loop.rank FOLDER TASK

TASK is a `Task` in JSON. The rank leaves in FOLDER its verdict, and the empty file `killed` before it kills itself. The
submission runs in its own sandbox, which ends with the rank.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from mpi4py import MPI

from farandole.runtime.failure import PeerLost
from farandole_tools.lab import labs, learner
from farandole_tools.lab.collective_calls import CollectiveCommunicator
from farandole_tools.lab.communicator import LabCommunicator
from farandole_tools.lab.contained.host import Guest, Origin
from farandole_tools.lab.loop import harness
from farandole_tools.lab.loop.watch import EVERY, STOPPED_AFTER, Moment, Watch


class Task(NamedTuple):
    """A training of a launch.

    Attributes:
        origin: what the submission's processes are made of.
        files: the folder that they share.
        saved: where in it the training saves its state.
        first: the number of steps after which the training should begin.
        moment: when the rank `killed` is killed.
    """

    origin: Origin
    files: str
    saved: str
    first: int
    moment: Moment
    killed: int | None


class Rank:
    """This rank of a training."""

    def __init__(self, folder: Path, task: Task) -> None:
        self.folder, self.task = folder, task
        self.comm = LabCommunicator.world()
        self.path = Path(task.origin.submission)
        self.guest: Guest | None = None
        self.is_killed = self.comm.rank == task.killed
        in_a_save = self.is_killed and task.moment == "save"
        self.watch = Watch(self.comm.rank, task.first, "save" if in_a_save else "", self.kill)
        self.calls = CollectiveCommunicator(self.comm, self.before_call)

    def run(self) -> None:
        """Train, and leave a verdict."""
        try:
            seed = 100 * (self.task.first > 0) + self.comm.rank
            self.load().train(seed, self.calls, self.task.saved, EVERY, self.watch)
            self.calls.returned()
            self.leave(self.watch.when, self.watch.verdict())
        except (PeerLost, MPI.Exception):
            self.leave(self.watch.when, "")
            os._exit(1)  # another process has been killed, and so this one ends, too
        except BaseException as error:
            self.leave(self.watch.done, f"rank {self.comm.rank}: {learner.explain(error, self.path)}")
            if self.calls.differ:
                self.comm.barrier()  # the ranks have all been told: none ends before the others have said why
            raise
        if self.guest:
            self.guest.end()

    def load(self) -> Any:
        """Import the submission; return the harness that calls it."""
        mode, lab, submission, helpers = self.task.origin
        if not mode:
            return learner.load(Path(submission), harness.__name__)
        place = self.folder / f"guest-{self.comm.rank}"
        files = Path(self.task.files)
        self.guest = Guest(mode, place, labs.load(Path(lab)), Path(submission), helpers, self.gone, files)
        self.path = self.guest.path
        return self.guest.load()

    def before_call(self, name: str) -> None:
        """Kill this rank if it is to be killed at this collective call."""
        at_step = self.is_killed and self.task.moment == "step"
        if at_step and name == "all_reduce" and self.watch.done == STOPPED_AFTER:
            self.kill()

    def kill(self) -> NoReturn:
        self.leave(self.watch.when, "")
        (self.folder / "killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
        raise SystemExit  # never reached

    def gone(self) -> NoReturn:
        """End this rank, since its submission has ended its process."""
        what = "ended in the middle: by os._exit, or a crash in compiled code"
        self.leave(self.watch.done, f"rank {self.comm.rank} {what}")
        os._exit(1)

    def leave(self, when: int, text: str) -> None:
        """Leave the verdict `text` of step `when`, or what was wrong before."""
        told = (self.watch.when, self.watch.problem) if self.watch.problem else (when, text)
        verdict = json.dumps([told[0], self.comm.rank, told[1]])
        unfinished = self.folder / f"{self.comm.rank}.unfinished"
        unfinished.write_text(verdict, encoding="utf-8")
        unfinished.replace(unfinished.with_suffix(".verdict"))  # at once: this rank may be ended meanwhile


def main(folder: str, text: str) -> None:
    origin, *rest = json.loads(text)
    Rank(Path(folder), Task(Origin(*origin), *rest)).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
