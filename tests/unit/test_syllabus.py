"""The syllabus has every notebook and lab in one of its weeks, and an answer to every question."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SYLLABUS = (ROOT / "docs" / "syllabus.md").read_text(encoding="utf-8")
WEEKS = [line for line in SYLLABUS.splitlines() if re.match(r"\| \d+ \|", line)]
QUESTION = re.compile(r"^(\d+)\. ", re.MULTILINE)


def test_every_notebook_has_its_week() -> None:
    named = re.findall(r"`(\d\d_\w+)`", "\n".join(WEEKS))
    assert sorted(named) == sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))


def test_every_lab_has_its_week() -> None:
    named = [int(number) for week in WEEKS for number in re.findall(r"\d+", week.rsplit("|", 2)[1])]
    assert sorted(named) == sorted(int(path.parent.name[:2]) for path in (ROOT / "labs").glob("*/check.py"))
    assert len(WEEKS) == 12


def test_every_question_has_an_answer_on_the_other_page() -> None:
    questions = [int(number) for number in QUESTION.findall(SYLLABUS)]
    answers = QUESTION.findall((ROOT / "docs" / "syllabus_answers.md").read_text(encoding="utf-8"))
    assert questions == [int(number) for number in answers] == list(range(1, len(questions) + 1))
