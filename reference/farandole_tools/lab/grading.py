"""Judging submissions: launch, read what the ranks left, launch again where one came to grief.

One launch per number of ranks runs all checks in order. A check that hangs or takes its process
down ends the launch; it has then failed, and the launch is repeated from the check after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from farandole.runtime import guard
from farandole_tools.lab.contained import sandbox
from farandole_tools.lab.contained.sandbox import Mode
from farandole_tools.lab.labs import Check, Lab
from farandole_tools.lab.launch import IMPORT, Launch, Task
from farandole_tools.lab.learner import NOT_IMPLEMENTED

LIMIT_S = 10.0
Progress = Callable[[Sequence[int]], Iterable[int]]  # yields the numbers of ranks, and shows how far it is


@dataclass(frozen=True)
class Result:
    """The result of one check: `message` says what is wrong, `printed` what the code had printed."""

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
    isolation: Mode | Literal[""] = ""

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


def grade(
    lab: Lab,
    submission: Path,
    *,
    name: str | None = None,
    limit_s: float = LIMIT_S,
    helpers: bool = False,
    ours: bool = False,
    progress: Progress = iter,
) -> Grade:
    """Run every check of `lab` on one file, on a copy of it in a sandbox.

    Args:
        name: what to call the submission; by default its path.
        helpers: the other files of its folder belong to it, and are copied with it.
        ours: it is our own code: it runs in the process of the checks, and may import the whole package.
        limit_s: seconds that importing the file, and each check at each number of ranks, may take.
        progress: of the launches, one for each number of ranks.

    Raises:
        LaunchError: the ranks did not even start, which says nothing about the submission.
        UsageError: there is no MPI.
    """
    mode: Mode | Literal[""] = "" if ours else isolation()
    limit_s *= lab.patience if mode else 1.0
    (results,) = grade_together([(lab, submission)], limit_s=limit_s, mode=mode, helpers=helpers, progress=progress)
    return Grade(name or str(submission), lab.name, only_where_right(lab, results), mode)


def only_where_right(lab: Lab, results: Sequence[Result]) -> tuple[Result, ...]:
    """Return the results as they count.

    What a wrong result costs, its bytes for instance, gives no points. A failure that may be the consequence of another
    names that other check instead of a reason.
    """
    causes: dict[str, list[str]] = {}  # of each check that gives no points, what has to be passed: itself, or others
    found = []
    for check, result in zip(lab.checks, results, strict=True):
        names = check.needs if result.passed else check.builds_on
        missing = list(dict.fromkeys(cause for name in names for cause in causes.get(name, ())))
        if missing and not result.message.startswith(NOT_IMPLEMENTED):
            *others, last = map(repr, missing)
            text = f"not judged yet: first pass {', '.join(others)}{' and ' * bool(others)}{last}"
            result = replace(result, passed=False, points=0, message=text)
            causes[check.name] = missing
        elif not result.passed:
            causes[check.name] = [check.name]
        found.append(result)
    return tuple(found)


@cache
def isolation() -> Mode:
    """Return how submissions are kept apart on this machine; found out once, by trying."""
    with guard.temporary_folder(sandbox.PREFIX) as folder:
        return sandbox.mode(folder)


def grade_together(
    submissions: Sequence[tuple[Lab, Path]],
    *,
    limit_s: float = LIMIT_S,
    mode: Mode | Literal[""] = "",
    helpers: bool = False,
    progress: Progress = iter,
) -> list[tuple[Result, ...]]:
    """Run every check of each lab on the file beside it, in as few launches as possible; return each one's results.

    The files of a launch share its processes, one after the other. One that ends or hangs a process, causes an error of
    MPI or leaves a thread or a child process behind is the last of its launch. Whatever else it changes, an imported
    module for instance, the next one finds changed: use this for known answers, not for submissions.

    Raises:
        LaunchError, UsageError: as `grade`.
    """
    failed: list[dict[str, Result]] = [{} for _ in submissions]
    numbers = sorted({ranks for lab, _ in submissions for check in lab.checks for ranks in check.ranks})
    for ranks in progress(numbers):
        todo: dict[int, list[Check]] = {}  # of each submission that has some left, the checks
        for number, (lab, _) in enumerate(submissions):
            todo[number] = [check for check in lab.checks if ranks in check.ranks and check.name not in failed[number]]
        while todo := {number: checks for number, checks in todo.items() if checks}:
            tasks = [Task(submissions[n][0], submissions[n][1].resolve(), tuple(todo[n]), mode, helpers) for n in todo]
            with guard.temporary_folder(sandbox.PREFIX) as folder:
                launch = Launch(tasks, ranks, limit_s, folder)
                launch.run()
                for place, number in enumerate(list(todo)):
                    if not launch.begun(place):
                        break
                    if not _note(launch, place, submissions[number][0], todo[number], failed[number]):
                        break
    return [
        tuple(found.get(check.name) or Result(check.name, True, check.points, check.points) for check in lab.checks)
        for (lab, _), found in zip(submissions, failed, strict=True)
    ]


def _note(launch: Launch, place: int, lab: Lab, todo: list[Check], failed: dict[str, Result]) -> bool:
    """Move what the launch has done of its task `place` from `todo` to `failed`; return whether it went on after it."""
    if reason := launch.reason(place, IMPORT):
        for check in lab.checks:
            failed.setdefault(check.name, _failure(check, reason, launch.printed(place, IMPORT)))
        todo.clear()
        return launch.completed(place, IMPORT)
    while todo:
        check = todo.pop(0)
        if reason := launch.reason(place, check.name):
            failed[check.name] = _failure(check, reason, launch.printed(place, check.name))
            if not launch.completed(place, check.name):
                return False
    return True


def _failure(check: Check, reason: str, printed: str) -> Result:
    return Result(check.name, False, 0, check.points, reason, printed)
