"""One launch of a lab's checks: the ranks that run them, and what these left in a folder.

Several submissions may share a launch, one after the other. Starting four ranks takes longer than most checks, and most
of that is importing. The ranks go on to the next submission only if the last one left them as they were.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from farandole.errors import LaunchError
from farandole.runtime.launcher import run_ranks
from farandole_tools.lab import rank_status
from farandole_tools.lab.contained import fork_server
from farandole_tools.lab.contained.host import TORCH
from farandole_tools.lab.contained.sandbox import Mode
from farandole_tools.lab.labs import Check, Lab

START_S = 60.0  # what a launch may take beside its checks
IMPORT = "import"  # the phase before the first check
VERDICT = "verdict"  # the file in which the deadlock detector says why it ended the launch
TASKS = "tasks.json"

# What one rank says of one check; "lost": it only saw that another process had died.
Kind = Literal["passed", "wrong", "error", "not implemented", "lost"]


@dataclass(frozen=True)
class Outcome:
    kind: Kind
    message: str
    rank: int = 0


@dataclass(frozen=True)
class Task:
    """Run `checks` of `lab` on the file `submission`.

    Attributes:
        mode: how it is kept apart from the checks; "" for our own code, which runs in the process of the checks.
        helpers: the other files of its folder belong to it.
    """

    lab: Lab
    submission: Path
    checks: tuple[Check, ...]
    mode: Mode | Literal[""] = ""
    helpers: bool = False


@dataclass(frozen=True)
class Launch:
    """One launch of `tasks`, in order, on `ranks` processes. What task i leaves is in `folder`/i."""

    tasks: Sequence[Task]
    ranks: int
    limit_s: float
    folder: Path

    def run(self) -> None:
        """Run the tasks until they are done, or until one of them ends a rank or leaves something behind.

        Raises:
            LaunchError: the ranks did not start, which says nothing about the submissions.
        """
        tasks = [
            (str(task.lab.folder), str(task.submission), [check.name for check in task.checks], task.mode, task.helpers)
            for task in self.tasks
        ]
        (self.folder / TASKS).write_text(json.dumps(tasks), encoding="utf-8")
        phases = sum(len(task.checks) + 1 for task in self.tasks)
        program = ["-m", "farandole_tools.lab.runner", str(self.folder), str(self.limit_s)]
        timeout_s = START_S + (self.limit_s + 2) * phases
        ended = "they ended at once"
        try:
            if any(task.mode and task.lab.with_torch for task in self.tasks):
                fork_server.start(TORCH)
            with_torch = any(task.lab.with_torch for task in self.tasks)
            run_ranks(program, self.ranks, timeout_s=timeout_s, with_torch=with_torch)
        except LaunchError as error:
            ended = error.message  # how a launch that began ended is in the folder
        if len(rank_status.read(self.folder, self.ranks)) < self.ranks:
            names = ", ".join(sorted({task.submission.name for task in self.tasks}))
            raise LaunchError(f"the checks' processes did not start, which is no fault of {names}: {ended}")

    def begun(self, number: int) -> bool:
        """Return whether the launch has come to this task."""
        return number == 0 or (self.folder / str(number)).exists()

    def completed(self, number: int, phase: str) -> bool:
        """Whether the launch goes on after it: a rank that has lost another still leaves an outcome, its last."""
        kinds = [outcome.kind for outcome in self._outcomes(number, phase)]
        return len(kinds) == self.ranks and "lost" not in kinds

    def reason(self, number: int, phase: str) -> str:
        """Why the phase failed, the cause before what followed from it; "" if every rank passed."""
        outcomes = self._outcomes(number, phase)
        where = self._where(number, phase)
        for outcome in outcomes:
            if outcome.kind == "not implemented":
                return outcome.message
            if outcome.kind == "wrong":
                return where + outcome.message
            if outcome.kind == "error":
                return where + (f"rank {outcome.rank}: " if where and self.ranks > 1 else "") + outcome.message
        if all(outcome.kind == "passed" for outcome in outcomes) and len(outcomes) == self.ranks:
            return ""
        with suppress(FileNotFoundError):
            return where + (self.folder / VERDICT).read_text("utf-8", errors="replace")
        silent = sorted(set(range(self.ranks)) - {outcome.rank for outcome in outcomes})
        if not silent:
            return where + next(outcome.message for outcome in outcomes if outcome.kind == "lost")
        who = f"{rank_status.named(silent)} " if self.ranks > 1 else "the process "
        return f"{where}{who}ended in the middle: by os._exit, a crash in compiled code, or deaf to the time limit"

    def printed(self, number: int, phase: str) -> str:
        """Return what the code printed in that phase, each line after its rank."""
        lines = []
        for rank in range(self.ranks):
            path = self.folder / str(number) / f"{phase}.{rank}.printed"
            with suppress(FileNotFoundError):
                lines += [f"rank {rank} | {line}" for line in path.read_text("utf-8", errors="replace").splitlines()]
        return "\n".join(lines)

    def _where(self, number: int, phase: str) -> str:
        """On how many ranks, where that makes a difference: not for the import, nor a check for one process."""
        one_process = all(check.ranks == (1,) for check in self.tasks[number].checks if check.name == phase)
        return "" if one_process else f"on {self.ranks} rank{'s' if self.ranks > 1 else ''}: "

    def _outcomes(self, number: int, phase: str) -> list[Outcome]:
        outcomes = []
        for rank in range(self.ranks):
            path = self.folder / str(number) / f"{phase}.{rank}.outcome"
            with suppress(FileNotFoundError):
                kind, message = json.loads(path.read_text())
                outcomes.append(Outcome(kind, message, rank))
        return outcomes
