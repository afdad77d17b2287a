"""Docstrings are written to be read in an editor; here they become valid reStructuredText.

Single backticks mean code, an indented block or a table drawn with spaces is shown as it stands,
and a stray ``*``, ``|`` or ``name_`` is just a character. Google-style sections (``Args:``,
``Attributes:``) are left to napoleon.
"""

from __future__ import annotations

import re
from itertools import groupby
from typing import Any

from sphinx.application import Sphinx

SECTION = re.compile(r"(Args|Arguments|Attributes|Raises|Returns|Yields|Warns|Examples?|Notes?):$")
ITEM = re.compile(r"\s*([-*•]|\d+[.)])\s+")
CODE = re.compile(r"(``.+?``|`[^`]+`)", re.DOTALL)


def inline(lines: list[str]) -> list[str]:
    """The lines with code in double backticks and every other character of meaning escaped."""
    pieces = CODE.split("\n".join(lines))
    for index, piece in enumerate(pieces):
        if index % 2:
            pieces[index] = f"``{piece.strip('`')}``"
            if pieces[index + 1][:1].isalnum():  # a code span must end at a word's boundary: `rank`s
                pieces[index] += "\\ "
        else:
            pieces[index] = re.sub(r"([\\*|`]|(?<=\w)_(?!\w))", r"\\\1", piece)
    return "".join(pieces).split("\n")


def indent_of(line: str) -> int:
    return len(line) - len(line.lstrip())


def literal(lines: list[str]) -> list[str]:
    return ["::", "", *(f"    {line}" for line in lines)]


def items(lines: list[str]) -> list[str]:
    """A list, with a blank line where it begins and the same marker throughout."""
    result: list[str] = []
    in_list = False
    for line in lines:
        if ITEM.match(line) and not in_list:
            in_list = True
            result += [""] if result else []
        result.append(re.sub(r"^(\s*)[*•]", r"\1-", line) if ITEM.match(line) else line)
    return inline(result)


def to_rest(lines: list[str]) -> list[str]:
    """The lines of one docstring (dedented, as autodoc gives them) as reStructuredText."""
    result: list[str] = []
    before = ""  # what the unindented block before this one was
    for blank, group in groupby(lines, key=lambda line: not line.strip()):
        block = list(group)
        if blank:
            result.append("")
        elif indent_of(block[0]) > 0:
            result += inline(block) if before in ("section", "list") else literal(block)
        elif SECTION.match(block[0]):
            before = "section"
            result += inline(block)
        elif any(ITEM.match(line) for line in block):
            before = "list"
            result += items(block)
        elif any(indent_of(line) for line in block):
            before = "table"
            result += literal(block)
        else:
            before = "paragraph"
            result += inline(block)
    return result


def process(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = to_rest(lines)


def setup(app: Sphinx) -> dict[str, bool]:
    # Before napoleon, which listens at 500 and writes reStructuredText of its own.
    app.connect("autodoc-process-docstring", process, priority=400)
    return {"parallel_read_safe": True}
