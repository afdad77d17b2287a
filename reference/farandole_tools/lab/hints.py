"""A learner's progress: checks, and the hints that were shown, in a file beside their labs."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farandole_tools.lab.grading import Grade
from farandole_tools.lab.labs import Lab

LOG = "progress.jsonl"
HINTS = "HINTS.md"
HINT = re.compile(r"<details><summary>(.+?)</summary>\s*(.+?)\s*</details>", re.DOTALL)


@dataclass(frozen=True)
class Hint:
    question: str
    answer: str


@dataclass(frozen=True)
class Progress:
    """The progress of a learner in one lab.

    Attributes:
        points: of the best check; None before the first one.
        checks: how often the file was checked.
        hints: how many hints were shown.
    """

    points: int | None = None
    checks: int = 0
    hints: int = 0


def hints(lab: Lab) -> list[Hint]:
    """Return a lab's hints, in order. They are in a file that no learner's folder gets: each one is asked for."""
    text = (lab.folder / HINTS).read_text(encoding="utf-8")
    return [Hint(*each) for each in HINT.findall(text)]


def log_check(my_labs: Path, grade: Grade) -> None:
    """Note a check of the learner's own file."""
    passed = [result.name for result in grade.results if result.passed]
    _append(my_labs, {"lab": grade.lab, "event": "check", "points": grade.points, "passed": passed})


def log_hint(my_labs: Path, lab: Lab, number: int) -> None:
    """Note that hint `number`, counted from 0, was shown."""
    _append(my_labs, {"lab": lab.name, "event": "hint", "number": number})


def progress(my_labs: Path) -> Mapping[str, Progress]:
    """Return for each lab in the log how far the learner is."""
    found: dict[str, Progress] = {}
    for event in _events(my_labs):
        name, before = str(event.get("lab")), found.get(str(event.get("lab")), Progress())
        if event.get("event") == "hint" and isinstance(number := event.get("number"), int):
            found[name] = Progress(before.points, before.checks, max(before.hints, number + 1))
        elif event.get("event") == "check" and isinstance(points := event.get("points"), int):
            found[name] = Progress(max(before.points or 0, points), before.checks + 1, before.hints)
    return found


def _append(my_labs: Path, event: Mapping[str, Any]) -> None:
    if my_labs.is_dir():  # without it the learner checks a file elsewhere, and nothing is kept
        with (my_labs / LOG).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"time": round(time.time())} | dict(event), ensure_ascii=False) + "\n")


def _events(my_labs: Path) -> Iterator[Mapping[str, Any]]:
    path = my_labs / LOG
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else ():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            yield event
