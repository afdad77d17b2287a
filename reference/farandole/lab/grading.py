"""Judging a submission: launch, read what the ranks left, launch again where one came to grief.

One launch per number of ranks runs all checks in order. A check that hangs or takes its process
down ends the launch; it has then failed, and the launch is repeated from the check after it.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from farandole.errors import LaunchError
from farandole.lab import board
from farandole.lab.labs import Check, Lab
from farandole.runtime import guard
from farandole.runtime.launcher import run_ranks

LIMIT_S = 10.0
START_S = 60.0  # what a launch may take beside its checks
IMPORT = "import"  # the phase before the first check
VERDICT = "verdict"  # the file in which the overseer says why it ended the launch

# What one rank says of one check; "lost": it only saw that another process had died.
Kind = Literal["passed", "wrong", "error", "not implemented", "lost"]


@dataclass(frozen=True)
class Outcome:
    kind: Kind
    message: str
    rank: int = 0


@dataclass(frozen=True)
class Result:
    """What came of one check: `message` says what is wrong, `printed` what the code had printed."""

    name: str
    passed: bool
    points: int
    max_points: int
    message: str = ""
    printed: str = ""


@dataclass(frozen=True)
class Grade:
    """A submission's results, in the order of the lab's checks."""

    submission: str
    lab: str
    results: tuple[Result, ...]

    @property
    def points(self) -> int:
        return sum(result.points for result in self.results)

    @property
    def max_points(self) -> int:
        return sum(result.max_points for result in self.results)

    @property
    def full_marks(self) -> bool:
        return all(result.passed for result in self.results)

    def as_dict(self) -> dict[str, Any]:
        keys = ("name", "passed", "points", "max_points", "message")
        checks = [{key: getattr(result, key) for key in keys} for result in self.results]
        return {
            "submission": self.submission,
            "lab": self.lab,
            "points": self.points,
            "max_points": self.max_points,
            "checks": checks,
        }


def grade(lab: Lab, submission: Path, *, name: str | None = None, limit_s: float = LIMIT_S) -> Grade:
    """Run every check of `lab` on one file.

    Args:
        name: what to call the submission; by default its path.
        limit_s: seconds that importing the file, and each check at each number of ranks, may take.

    Raises:
        LaunchError: the ranks did not even start, which says nothing about the submission.
        UsageError: there is no MPI.
    """
    failed: dict[str, Result] = {}
    for ranks in sorted({ranks for check in lab.checks for ranks in check.ranks}):
        todo = [check for check in lab.checks if ranks in check.ranks and check.name not in failed]
        while todo:
            with guard.temporary_folder("farandole-lab-") as folder:
                launch = Launch(lab, submission.resolve(), tuple(todo), ranks, limit_s, folder)
                launch.run()
                if reason := launch.reason(IMPORT):
                    for check in lab.checks:
                        failed.setdefault(check.name, _failure(check, reason, launch.printed(IMPORT)))
                    todo = []
                while todo:
                    check = todo.pop(0)
                    if reason := launch.reason(check.name):
                        failed[check.name] = _failure(check, reason, launch.printed(check.name))
                        if not launch.completed(check.name):
                            break
    results = (failed.get(check.name) or Result(check.name, True, check.points, check.points) for check in lab.checks)
    return Grade(name or str(submission), lab.name, tuple(results))


@dataclass(frozen=True)
class Launch:
    """One launch of `checks` on `ranks` processes, and what it left in `folder`."""

    lab: Lab
    submission: Path
    checks: tuple[Check, ...]
    ranks: int
    limit_s: float
    folder: Path

    def run(self) -> None:
        names = [check.name for check in self.checks]
        files = [str(self.lab.folder), str(self.submission), str(self.folder)]
        limit_s = START_S + (self.limit_s + 2) * (len(names) + 1)
        program = ["-m", "farandole.lab.runner", *files, str(self.limit_s), *names]
        ended = "they ended at once"
        try:
            run_ranks(program, self.ranks, timeout_s=limit_s, with_torch=False)
        except LaunchError as error:
            ended = error.message  # how a launch that began ended is in the folder
        if len(board.read(self.folder, self.ranks)) < self.ranks:
            raise LaunchError(
                f"the checks' processes did not start, which is no fault of {self.submission.name}: {ended}"
            )

    def completed(self, phase: str) -> bool:
        """Whether the launch goes on after it: a rank that has lost another still leaves an outcome, its last."""
        kinds = [outcome.kind for outcome in self._outcomes(phase)]
        return len(kinds) == self.ranks and "lost" not in kinds

    def reason(self, phase: str) -> str:
        """Why the phase failed, the cause before what followed from it; "" if every rank passed."""
        outcomes = self._outcomes(phase)
        where = self._where(phase)
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
        who = f"{board.named(silent)} " if self.ranks > 1 else "the process "
        return f"{where}{who}ended in the middle: by os._exit, a crash in compiled code, or deaf to the time limit"

    def printed(self, phase: str) -> str:
        """What the code printed in that phase, each line after its rank."""
        lines = []
        for rank in range(self.ranks):
            path = self.folder / f"{phase}.{rank}.printed"
            with suppress(FileNotFoundError):
                lines += [f"rank {rank} | {line}" for line in path.read_text("utf-8", errors="replace").splitlines()]
        return "\n".join(lines)

    def _where(self, phase: str) -> str:
        """On how many ranks, where that makes a difference: not for the import, nor a check for one process."""
        one_process = all(check.ranks == (1,) for check in self.checks if check.name == phase)
        return "" if one_process else f"on {self.ranks} rank{'s' if self.ranks > 1 else ''}: "

    def _outcomes(self, phase: str) -> list[Outcome]:
        outcomes = []
        for rank in range(self.ranks):
            path = self.folder / f"{phase}.{rank}.outcome"
            with suppress(FileNotFoundError):
                kind, message = json.loads(path.read_text())
                outcomes.append(Outcome(kind, message, rank))
        return outcomes


def _failure(check: Check, reason: str, printed: str) -> Result:
    return Result(check.name, False, 0, check.points, reason, printed)
