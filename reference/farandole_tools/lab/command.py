"""``farandole lab list | start | check``: exercises that are judged on real ranks."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

import cyclopts
from cyclopts import Parameter
from rich import box
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from farandole.errors import UsageError
from farandole.runtime import guard, rank_starter
from farandole.runtime.files import json_text
from farandole.runtime.numbers import Positive
from farandole_tools.lab import course, grading, hints, labs, mutants, submissions, tables
from farandole_tools.lab.expectations import counted
from farandole_tools.lab.labs import Lab
from farandole_tools.lab.tables import printable

app = cyclopts.App(name="lab", help="Exercises: write a method yourself and have it judged on real ranks.")

for each in course.COMMANDS:
    app.command(each)

MyLabs = Annotated[Path, Parameter(name="--dir", help="The folder your labs are in.")]


@app.command(name="list")
def list_labs() -> None:
    """List the labs, and how far you are: not started, or started."""
    mine = submissions.place()
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for column in ("lab", "title", "to complete", "points", ""):
        table.add_column(column, justify="right" if column == "points" else "left", no_wrap=True)
    for folder in labs.folders():
        lab = labs.load(folder)
        started = (mine / lab.name / lab.file).exists()
        state = "started" if started else "not started"
        table.add_row(str(lab.number), lab.title, lab.file, str(lab.max_points), state)
    Console().print(table)
    print(f"To begin with lab N: farandole lab start N, which puts it into {submissions.MY_LABS}/")


@app.command
def start(number: str, /, *, my_labs: MyLabs = submissions.MY_LABS) -> None:
    """Copy a lab's task, notebook and file to complete to your folder.

    Parameters
    ----------
    number
        The lab: 2, 02 or 02_ring_all_reduce.
    """
    lab = labs.find(number)
    started = submissions.start(lab, my_labs)
    print(f"Lab {lab.number}, {lab.title}, is in {started.folder}/")
    for names, text in (
        (started.new, "new"),
        (started.kept, "there already"),
        (started.changed, "there already with changes of yours, and left as it is"),
    ):
        for name in names:
            print(f"    {name}: {text}")
    other = "" if my_labs == submissions.MY_LABS else f" --dir {my_labs}"
    print(f"Read {submissions.TASK}, complete {lab.file}, then: farandole lab check {lab.number}{other}")


@app.command
def check(
    number: str,
    submission: Path | None = None,
    /,
    *,
    with_: Annotated[Literal["reference", "wrong"] | None, Parameter(name="--with")] = None,
    my_labs: MyLabs = submissions.MY_LABS,
    time_limit: Positive = grading.LIMIT_S,
    json_: Annotated[bool, Parameter(name="--json")] = False,
) -> None:
    """Judge a submission, or a folder of them. Exit code 0: full marks; 1: not all points.

    Each submission runs in a sandbox, as far as this machine permits: `farandole lab grade` says by which means.

    Parameters
    ----------
    number
        The lab: 2, 02 or 02_ring_all_reduce.
    submission
        A file, or a folder in which each Python file, and each sub-folder with the lab's file, is
        one submission. Without it: your own file, where `farandole lab start` put it.
    with_
        Check the project's own solution instead, or all known wrong answers.
    time_limit
        Seconds that each check may take on each number of ranks.
    json_
        Print the result as JSON and nothing else: an object for a file, a list for a folder.
    """
    lab = labs.find(number)
    if with_ and submission:
        raise UsageError(f"--with {with_} and {submission}: give one of the two")
    home = submissions.place(my_labs)
    path = lab.folder / "reference.py" if with_ else submission or submissions.own(lab, home)
    if path.is_dir() and submissions.is_started(lab, path):
        path /= lab.file
    several = path.is_dir() or with_ == "wrong"
    if lab.with_torch:
        rank_starter.prepare("torch._dynamo")  # torch's optimizers import it: together two seconds on each rank
    if with_ == "wrong":
        grades = _grade_mutants(lab, time_limit)
    elif path.is_dir():
        grades = _grade_folder(lab, path, time_limit)
    elif path.is_file() and path.suffix == ".py":
        _say(f"Lab {lab.number}: checking {path}")
        named_so = submission is None or path.name == lab.file
        grades = [grading.grade(lab, path, limit_s=time_limit, ours=bool(with_), helpers=named_so, progress=_bar)]
        if not with_ and (submission is None or path.resolve() == (home / lab.name / lab.file).resolve()):
            _note(home, grades[0])
    else:
        what = "not a Python file" if path.exists() else "not there"
        raise UsageError(f"{path} is {what}: name the completed {lab.file}, or a folder of submissions")
    if json_:
        result = [grade.as_dict() for grade in grades]
        print(json_text(result if several else result[0], indent=2))
    elif several:
        tables.show_all(lab, grades)
    else:
        tables.show(lab, grades[0])
    if not all(grade.full_marks for grade in grades):
        raise SystemExit(1)


def _note(home: Path, grade: grading.Grade) -> None:
    try:
        hints.log_check(home, grade)
    except OSError as error:  # the marks count for more
        print(f"this check is not in your progress: {error.strerror}: {error.filename}", file=sys.stderr)


def _grade_folder(lab: Lab, folder: Path, limit_s: float) -> list[grading.Grade]:
    found, left_out = submissions.found(lab, folder)
    if left_out:
        print(f"Not submissions of this lab, and left out: {', '.join(map(printable, left_out))}", file=sys.stderr)
    grades: list[grading.Grade] = []
    for name, path in found.items():
        _say(f"Lab {lab.number}: checking {printable(name)} ({len(grades) + 1} of {len(found)})")
        helpers = path.parent != folder
        grades.append(grading.grade(lab, path, name=name, limit_s=limit_s, helpers=helpers, progress=_bar))
    return grades


def _grade_mutants(lab: Lab, limit_s: float) -> list[grading.Grade]:
    with guard.temporary_folder("farandole-lab-") as folder:
        files = mutants.write(lab, folder)
        _say(f"Lab {lab.number}: checking {len(files)} known wrong answers")
        judged = grading.grade_together([(lab, path) for path in files.values()], limit_s=limit_s, progress=_bar)
    return [grading.Grade(name, lab.name, results) for name, results in zip(files, judged, strict=True)]


def _bar(numbers: Sequence[int]) -> Iterator[int]:
    """Yield the numbers of ranks; on a terminal a bar shows how many launches are done."""
    with tqdm(numbers, unit="launch", leave=False, disable=not sys.stderr.isatty(), file=sys.stderr) as bar:
        for ranks in bar:
            bar.set_postfix_str(f"on {counted(ranks, 'rank')}")
            yield ranks


def _say(text: str) -> None:
    """Print progress to a terminal, and nothing elsewhere."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr)
