"""A class's results: written as they come, resumed, summed up, and given out in other systems' formats."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from farandole_tools.lab.contained import kit
from farandole_tools.lab.contained.sandbox import Mode
from farandole_tools.lab.entries import Entry, writable
from farandole_tools.lab.grading import Grade
from farandole_tools.lab.labs import Lab
from farandole_tools.lab.suspicions import Pair

PASS = 0.5  # share of the points with which a submission has passed
# nbgrader's CSV export (nbgrader.plugins.export.CsvExportPlugin).
NBGRADER = (
    "assignment", "duedate", "timestamp", "student_id", "last_name", "first_name", "email", "raw_score",
    "late_submission_penalty", "score", "max_score",
)  # fmt: skip
OTTER = ("total_points_earned", "percent_correct", "grading_status")  # after the columns of the questions


@dataclass
class Row:
    """One submission's line in the results.

    Attributes:
        submission: the file's or folder's name.
        digest: of the submission and of the checks: the same means that there is nothing to judge anew.
        reason: why it could not be judged; "" if it was.
        isolation: how it was kept apart; "" if it was not judged.
        look_at: what a person should look at.
        checks: name, passed, points, max_points and message of each check.
    """

    submission: str
    lab: str
    digest: str
    points: int
    max_points: int
    passed: bool
    reason: str = ""
    isolation: Mode | Literal[""] = ""
    look_at: list[str] = field(default_factory=list)
    checks: list[dict[str, Any]] = field(default_factory=list)


def digest_of(lab: Lab, entry: Entry, limit_s: float) -> str:
    """Return a digest of all that a result depends on: a submission's files, the checks, the time limit."""
    digest = hashlib.sha256(f"{lab.name} {limit_s:g} {entry.reason}".encode())
    files = {"check.py": lab.folder / "check.py"}
    if entry.path:
        files |= {str(path.relative_to(entry.path.parent)): path for path in kit.files(entry.path, entry.helpers)}
    for name, path in files.items():
        digest.update(b"\0" + os.fsencode(name) + b"\0" + path.read_bytes())
    return digest.hexdigest()


def row_of(lab: Lab, entry: Entry, digest: str, grade: Grade | None, look_at: Sequence[str] = ()) -> Row:
    """Return the line of a submission that was judged, or could not be."""
    if grade is None:
        return Row(entry.name, lab.name, digest, 0, lab.max_points, False, entry.reason, "", list(look_at))
    passed = grade.points >= PASS * grade.max_points
    checks = [each | {"message": writable(each["message"])} for each in grade.as_dict()["checks"]]
    isolation = grade.isolation or "none"
    return Row(
        entry.name, lab.name, digest, grade.points, grade.max_points, passed, "", isolation, list(look_at), checks
    )


def not_judged(lab: Lab, entry: Entry, error: Exception) -> Row:
    """Return the line of a submission at which the grader itself came to grief. The next run tries again."""
    lines = f"{type(error).__name__}: {error}".splitlines()
    return Row(entry.name, lab.name, "", 0, lab.max_points, False, f"could not be judged: {writable(lines[0])}")


class Results:
    """The lines in a file, one JSON object each; the latest one of a submission counts.

    A line is on the disk before the next submission is judged, so an interrupted run loses the one that it was at.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[str, Row] = {}
        if path.exists():
            text = path.read_text(encoding="utf-8", errors="replace")
            for line in text.split("\n"):  # a message may have what other systems take for the end of a line
                try:
                    row = Row(**json.loads(line))
                except (ValueError, TypeError):
                    continue  # the line at which it was interrupted
                self.rows[row.submission] = row
            if text and not text.endswith("\n"):
                with path.open("a", encoding="utf-8") as file:
                    file.write("\n")

    def has(self, name: str, digest: str) -> bool:
        """Whether there is a result of this very submission."""
        return name in self.rows and self.rows[name].digest == digest

    def add(self, row: Row) -> None:
        """Write a line, and return once it is on the disk."""
        self.rows[row.submission] = row
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(row), ensure_ascii=False) + "\n")
            file.flush()
            os.fsync(file.fileno())


def class_statistic(lab: Lab, rows: Iterable[Row]) -> dict[str, Any]:
    """Return how many submissions there are, were judged and passed, and for each check how many passed it."""
    every = list(rows)
    judged = [row for row in every if not row.reason]
    points = [row.points for row in judged]
    return {
        "submissions": len(every),
        "judged": len(judged),
        "passed": sum(row.passed for row in judged),
        "pass_mark": PASS * lab.max_points,
        "mean": round(statistics.fmean(points), 2) if points else None,
        "median": statistics.median(points) if points else None,
        "checks": {
            check.name: sum(each["passed"] for row in judged for each in row.checks if each["name"] == check.name)
            for check in lab.checks
        },
    }


def as_csv(rows: Iterable[Row], students: Mapping[str, str]) -> str:
    """Return the columns of `nbgrader export`; what is not known here, names and dates, is empty.

    Args:
        students: the student of each submission, by name.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, NBGRADER, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        known = {"assignment": row.lab, "student_id": students[row.submission], "raw_score": float(row.points)}
        known |= {"late_submission_penalty": 0.0, "score": float(row.points), "max_score": float(row.max_points)}
        writer.writerow({name: _cell(known.get(name, "")) for name in NBGRADER})
    return text.getvalue()


def as_otter(lab: Lab, rows: Iterable[Row]) -> str:
    """Return the table that `otter grade` writes as final_grades.csv, in the form of Otter-Grader 7.0.0.

    The columns are the file, the points of each check in the order of their names, and `OTTER`. The first row has the
    points that can be reached; the others are in the order of the files' names.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    possible = {check.name: float(check.points) for check in sorted(lab.checks, key=lambda check: check.name)}
    writer.writerow(["file", *possible, *OTTER])
    writer.writerow(["points-per-question", *possible.values(), float(lab.max_points), 1.0, "--"])
    for row in sorted(rows, key=lambda row: row.submission):
        points = {check["name"]: float(check["points"]) for check in row.checks}
        of_checks = [points.get(name, 0.0) for name in possible]
        of_all = float(row.points), round(row.points / row.max_points, 4)
        writer.writerow([_cell(row.submission), *of_checks, *of_all, _cell(row.reason or "Completed")])
    return text.getvalue()


def as_gradescope(row: Row, look_at: Sequence[str]) -> dict[str, Any]:
    """Return what Gradescope reads as an autograder's results.json.

    Args:
        look_at: as `with_similar` returns it.
    """
    tests = [
        {
            "name": check["name"],
            "number": str(number),
            "score": float(check["points"]),
            "max_score": float(check["max_points"]),
            "status": "passed" if check["passed"] else "failed",
            "output": check["message"],
            "output_format": "text",
            "visibility": "visible",
        }
        for number, check in enumerate(row.checks, 1)
    ]
    found: dict[str, Any] = {"score": float(row.points), "visibility": "visible", "stdout_visibility": "hidden"}
    found |= {"output": row.reason, "tests": tests}
    return found | {"extra_data": {"lab": row.lab, "isolation": row.isolation, "look_at": list(look_at)}}


def as_json(lab: Lab, rows: Sequence[Row], pairs: Sequence[Pair]) -> dict[str, Any]:
    """Return everything: the rows, the class statistic and the similarity report."""
    return {
        "lab": lab.name,
        "class": class_statistic(lab, rows),
        "similar": [asdict(pair) for pair in pairs],
        "submissions": [asdict(row) for row in rows],
    }


def students(submissions: Sequence[str]) -> dict[str, str]:
    """Return each submission's name without the ending of a file, or with it where two would then be called alike."""
    short = {name: name.removesuffix(".py") for name in submissions}
    times = Counter(short.values())
    return {
        name: each if times[each] == 1 and (each == name or each not in short) else name for name, each in short.items()
    }


def with_similar(rows: Mapping[str, Row], pairs: Iterable[Pair]) -> dict[str, list[str]]:
    """Return for each submission what to look at: what its row has, and what it is similar to."""
    found = {name: list(row.look_at) for name, row in rows.items()}
    for pair in pairs:
        for one, other in ((pair.first, pair.second), (pair.second, pair.first)):
            if one in found:
                found[one].append(f"{pair.share:.0%} similar to {other}")
    return found


def _cell(value: Any) -> Any:
    """Return a text that a spreadsheet does not take for a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
