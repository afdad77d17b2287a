"""The documentation's table of the files on a push's path lists the files that run during a push."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "parameter_server.md"
FILE = re.compile(r"`parameter_server/([\w/]+\.py)`")
MOST_FILES = 8


def table() -> tuple[list[str], set[str]]:
    """Return the files that the page lists: those on the path, in order, and those that they use."""
    text = PAGE.read_text("utf-8")
    rows = re.findall(r"^\| \d+ \|(.*)\|(.*)\|(.*)\|$", text[text.index("## The path of a push") :], re.MULTILINE)
    path = [name for file, _, _ in rows for name in FILE.findall(file)]
    used = {name for _, _, uses in rows for name in FILE.findall(uses)}
    return path, used


def test_a_push_passes_the_files_that_the_page_lists(under_mpirun: Callable[..., Any]) -> None:
    answer = under_mpirun("ps_push_path.py", 2)
    assert answer["moved"] == [-1.0]
    ran = dict.fromkeys([*answer["worker"], *answer["server"]])
    path, used = table()
    assert set(ran) == {*path, *used}
    assert [name for name in ran if name in path] == path, "in the order of the calls"
    assert len(path) <= MOST_FILES
    numbers = re.search(r"passes (\w+) files, and (\w+) more", PAGE.read_text("utf-8"))
    assert numbers
    assert [{"six": 6, "seven": 7, "eight": 8}[number] for number in numbers.groups()] == [len(path), len(used)]
