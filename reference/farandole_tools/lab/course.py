"""`farandole lab grade | bundle | hint | progress`: a class's results, what students get, and a learner's own way."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich import box
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from farandole.errors import LaunchError, UsageError
from farandole.runtime import rank_starter
from farandole.runtime.files import json_text
from farandole.runtime.numbers import Positive
from farandole_tools.lab import bundle as bundles
from farandole_tools.lab import entries, gradebook, grading, hints, labs, mutants, submissions, suspicions, tables
from farandole_tools.lab.contained import sandbox
from farandole_tools.lab.entries import Entry
from farandole_tools.lab.gradebook import Results, Row
from farandole_tools.lab.labs import Lab
from farandole_tools.lab.suspicions import Pair

Texts = Mapping[str, Mapping[str, str | None]]  # of each submission's files, by name


def grade(
    number: str,
    folder: Path,
    /,
    *,
    results: Path | None = None,
    csv: Path | None = None,
    json_: Annotated[Path | None, Parameter(name="--json")] = None,
    gradescope: Path | None = None,
    otter: Path | None = None,
    time_limit: Positive = grading.LIMIT_S,
) -> None:
    """Judge a class: a row for every entry of a folder, whatever is in it.

    Results are written to a file as they come. Run again, it continues where it was interrupted, and judges only what
    has changed since. Exit code 0: all is judged, whatever the marks.

    Parameters
    ----------
    number
        The lab: 2, 02 or 02_ring_all_reduce.
    folder
        Each file of Python in it, and each sub-folder with the lab's file, is one submission.
    results
        The file of results, a JSON object in each line. [default: grades_LAB.jsonl in the current folder]
    csv
        Write the points to this file, with the columns of `nbgrader export`.
    json_
        Write everything to this file: the rows, the class statistic and the similarity report.
    gradescope
        Write a results.json for each submission, in a folder of its name, into this folder.
    otter
        Write the points of each check to this file, as `otter grade` writes final_grades.csv.
    time_limit
        Seconds that each check may take on each number of ranks.
    """
    lab = labs.find(number)
    found = entries.entries(lab, folder)
    book = Results(results or Path(f"grades_{lab.name}.jsonl"))
    if lab.with_torch:
        rank_starter.prepare("torch._dynamo")
    texts = {each.name: suspicions.texts(each.path, each.helpers) for each in found if each.path}
    _judge_all(lab, found, texts, book, time_limit)
    rows = [book.rows[each.name] for each in found if each.name in book.rows]
    known = {"the reference": (lab.folder / "reference.py").read_text("utf-8"), "a right answer": mutants.original(lab)}
    pairs = suspicions.similar(texts, known, (lab.folder / lab.file).read_text("utf-8"))
    students = gradebook.students([each.name for each in found])
    _write(lab, rows, students, pairs, csv, json_, gradescope, otter)
    _show(lab, rows, pairs)
    print(f"Results: {book.path}")


def _judge_all(lab: Lab, found: Sequence[Entry], texts: Texts, book: Results, limit_s: float) -> None:
    with tqdm(found, unit="submission", disable=not sys.stderr.isatty(), file=sys.stderr) as bar:
        for entry in bar:
            bar.set_postfix_str(tables.printable(entry.name))
            try:
                row = _judged(lab, entry, texts, book, limit_s)
            except LaunchError as error:
                # The machine's fault: no result, so that the next run tries again.
                first = next(iter(error.message.splitlines()), "")
                print(f"{tables.printable(entry.name)}: {tables.printable(first)}", file=sys.stderr)
                continue
            except UsageError:
                raise  # no MPI, or no room: it would be the same for every submission
            except Exception as error:  # whatever a submission causes, the others are judged
                row = gradebook.not_judged(lab, entry, error)
            if row:
                book.add(row)


def _judged(lab: Lab, entry: Entry, texts: Texts, book: Results, limit_s: float) -> Row | None:
    """Return the line of a submission; None if the results have it already."""
    digest = gradebook.digest_of(lab, entry, limit_s)
    if book.has(entry.name, digest):
        return None
    given, look_at = None, []
    if entry.path:
        given = grading.grade(lab, entry.path, name=entry.name, limit_s=limit_s, helpers=entry.helpers)
        look_at = suspicions.look_at_all(texts[entry.name], lab)
    return gradebook.row_of(lab, entry, digest, given, look_at)


def _write(
    lab: Lab,
    rows: Sequence[Row],
    students: Mapping[str, str],
    pairs: Sequence[Pair],
    csv: Path | None,
    json_: Path | None,
    gradescope: Path | None,
    otter: Path | None,
) -> None:
    try:
        if csv:
            csv.write_text(gradebook.as_csv(rows, students), encoding="utf-8")
        if otter:
            otter.write_text(gradebook.as_otter(lab, rows), encoding="utf-8")
        if json_:
            json_.write_text(json_text(gradebook.as_json(lab, rows, pairs), indent=2), encoding="utf-8")
        look_at = gradebook.with_similar({row.submission: row for row in rows}, pairs)
        for row in rows if gradescope else ():
            assert gradescope
            place = gradescope / students[row.submission]
            place.mkdir(parents=True, exist_ok=True)
            text = json.dumps(gradebook.as_gradescope(row, look_at[row.submission]), indent=2, ensure_ascii=False)
            (place / "results.json").write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{error.filename} cannot be written ({error.strerror}): give another place") from error


def _show(lab: Lab, rows: Sequence[Row], pairs: Sequence[Pair]) -> None:
    console = Console(highlight=False)
    table = Table(title=f"Lab {lab.number}, {lab.title}", box=box.SIMPLE, title_justify="left")
    for name in ("submission", "points", "failed", "look at"):
        table.add_column(name, justify="right" if name == "points" else "left", no_wrap=name == "points")
    look_at = gradebook.with_similar({row.submission: row for row in rows}, pairs)
    for row in rows:
        failed = row.reason or ", ".join(each["name"] for each in row.checks if not each["passed"])
        cells = (row.submission, f"{row.points} of {row.max_points}", failed, "; ".join(look_at[row.submission]))
        table.add_row(*map(tables.shown, cells))
    console.print(table)
    summary = gradebook.class_statistic(lab, rows)
    checks = ", ".join(f"{name} {passed}" for name, passed in summary["checks"].items())
    print(f"{summary['submissions']} submissions, {summary['judged']} judged: {checks} passed")
    if summary["judged"]:
        mark = f"{summary['pass_mark']:g} points or more"
        print(f"{summary['passed']} have {mark}; mean {summary['mean']:g}, median {summary['median']:g}")
    for kind in dict.fromkeys(row.isolation for row in rows if row.isolation):
        print(f"Isolation: {sandbox.MODES[kind]}")


def bundle(directory: Path, /, *numbers: str, classroom: bool = False, package: str = bundles.PACKAGE) -> None:
    """Write what students get: tasks, notebooks and files to complete, without solutions, checks and outputs.

    Parameters
    ----------
    directory
        A new or empty folder.
    numbers
        The labs, such as 1 2 7. [default: all]
    classroom
        Add the workflow with which GitHub Classroom checks each push.
    package
        What students and the workflow install with pip: where your copy of this package is.
    """
    chosen = [labs.find(each) for each in numbers] if numbers else [labs.load(each) for each in labs.folders()]
    written = bundles.write(chosen, directory, classroom, package)
    print(f"{directory}: {len(chosen)} labs, {len(written)} files")


def hint(
    number: str,
    /,
    *,
    next_: Annotated[bool, Parameter(name="--next")] = False,
    my_labs: Annotated[Path, Parameter(name="--dir")] = submissions.MY_LABS,
) -> None:
    """Show the hints of a lab that you have asked for. A hint costs no points; it is noted in your folder.

    Parameters
    ----------
    number
        The lab: 2, 02 or 02_ring_all_reduce.
    next_
        Show one more.
    my_labs
        The folder your labs are in.
    """
    lab = labs.find(number)
    my_labs = submissions.place(my_labs)
    every = hints.hints(lab)
    seen = hints.progress(my_labs).get(lab.name, hints.Progress()).hints
    if next_ and seen < len(every):
        my_labs.mkdir(parents=True, exist_ok=True)
        hints.log_hint(my_labs, lab, seen)
        seen += 1
    for place, each in enumerate(every[:seen], 1):
        print(f"{place}. {each.question}\n\n{each.answer}\n")
    left = len(every) - seen
    print(f"{left} more: farandole lab hint {lab.number} --next" if left else "There are no more hints.")


def progress(*, my_labs: Annotated[Path, Parameter(name="--dir")] = submissions.MY_LABS) -> None:
    """Show how far you are in each lab: the best points, how often you checked, and the hints you asked for.

    Parameters
    ----------
    my_labs
        The folder your labs are in.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for column in ("lab", "title", "points", "checks", "hints"):
        table.add_column(column, justify="left" if column == "title" else "right", no_wrap=True)
    my_labs = submissions.place(my_labs)
    done = hints.progress(my_labs)
    for folder in labs.folders():
        lab = labs.load(folder)
        now = done.get(lab.name, hints.Progress())
        started = (my_labs / lab.name / lab.file).exists() or now.points is not None
        points = "–" if not started else f"{now.points or 0} of {lab.max_points}"
        asked = f"{now.hints} of {len(hints.hints(lab))}"
        table.add_row(str(lab.number), lab.title, points, str(now.checks), asked)
    Console().print(table)


COMMANDS = (grade, bundle, hint, progress)
