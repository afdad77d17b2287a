"""Each sentence that specifies a lab has a wrong answer that breaks it, or a reason why none can."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

from farandole_tools.lab import labs, mutants
from tests.labs.labs_for_tests import FOLDERS

SECTIONS = ("Args:", "Returns:", "Raises:", "Attributes:")
COMMENTS = "comments"  # the key of what the file's comments say

FILE = '''
"""Lab 0: not a part of the specification."""

A = 1  # the first letter
# The second. It has
# two lines.
B = 2


def given(x):
    """Return x. This function is given."""
    return x


class Thing:
    """A thing.

    Args:
        x, y: two numbers. They
            are given:
            x     the first
            y     the second
        z: the third.
    """

    def use(self):
        """Use it, once
        only.

        It is of two kinds:

            "one"    the first
            "two"    the second

        Returns:
            Its name. It may be empty.
        """
        raise NotImplementedError
'''


def specified(text: str) -> dict[str, list[str]]:
    """Return the sentences of a file to complete, by function or class; those of its comments by `COMMENTS`."""
    comments = ""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and "noqa" not in token.string:
            comments += f"{token.string.strip('# ')}\n" + "\n" * (not token.line.startswith("#"))
    found = {COMMENTS: sentences_in(comments)} if comments else {}

    def visit(body: list[ast.stmt], before: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                is_given = isinstance(node, ast.FunctionDef) and not isinstance(node.body[-1], ast.Raise)
                if not is_given and (docstring := ast.get_docstring(node)):
                    found[before + node.name] = sentences_in(docstring)
                if isinstance(node, ast.ClassDef):
                    visit(node.body, f"{node.name}.")

    visit(ast.parse(text).body, "")
    return found


def sentences_in(docstring: str) -> list[str]:
    """Return the sentences of a docstring; a row of a table is one, unless the table is part of an argument."""
    blocks: list[str] = []
    section, begins = "", True
    for line in docstring.splitlines():
        words = line.strip()
        if not words or words in SECTIONS:
            section, begins = words or section, True
            continue
        is_row = re.search(r"\S  +\S", words) and (not section or words.startswith('"'))
        is_entry = section in ("Args:", "Raises:", "Attributes:") and re.match(r" {4}\w[\w, ]*:", line)
        if begins or is_row or is_entry:
            blocks.append(words)
        else:
            blocks[-1] += f" {words}"
        begins = False
    return [sentence for block in blocks for sentence in re.split(r"(?<=\.) ", " ".join(block.split()))]


def holes(told: mutants.Sentences, right: dict[str, list[str]], names: set[str]) -> list[str]:
    """Return what a map of sentences lacks, or has too much."""
    found = [f"{place}: there is no such function or class" for place in told if place not in right]
    for place, sentences in right.items():
        answers = told.get(place, {})
        text, end = " | ".join(sentences), 0
        for phrase, breaking in answers.items():
            if text.count(phrase) != 1:
                found.append(f"{place}: {phrase!r} occurs {text.count(phrase)} times")
            elif text.index(phrase) < end:
                found.append(f"{place}: {phrase!r} is not in the order of the docstring")
            end = max(end, text.find(phrase) + 1)
            if isinstance(breaking, str):
                found += [] if " " in breaking else [f"{place}: {phrase!r} has no reason"]
            else:
                unknown = [name for name in breaking if name not in names]
                found += [f"{place}: there is no wrong answer {name}" for name in unknown]
                found += [] if breaking else [f"{place}: nothing breaks {phrase!r}"]
        found += [
            f"{place}: nothing breaks {sentence!r}"
            for sentence in sentences
            if not any(phrase in sentence for phrase in answers)
        ]
    return found


def test_a_file_is_divided_into_sentences() -> None:
    assert specified(FILE) == {
        COMMENTS: ["the first letter", "The second.", "It has two lines."],
        "Thing": ["A thing.", "x, y: two numbers.", "They are given: x the first y the second", "z: the third."],
        "Thing.use": [
            "Use it, once only.",
            "It is of two kinds:",
            '"one" the first',
            '"two" the second',
            "Its name.",
            "It may be empty.",
        ],
    }


def test_a_hole_is_found() -> None:
    right = {"f": ["Return x.", "It is new.", "x: any number."]}
    complete: mutants.Sentences = {
        "f": {"Return x": ["no_x"], "is new": ["old", "no_x"], "x: any": "describes x"},
    }
    assert holes(complete, right, {"no_x", "old"}) == []
    assert holes(complete, right, {"no_x"}) == ["f: there is no wrong answer old"]
    assert holes({"g": {}, **complete}, right, {"no_x", "old"}) == ["g: there is no such function or class"]
    assert holes({"f": {"Return x": ["no_x"], "new": [], "x: any": "?"}}, right, {"no_x"}) == [
        "f: nothing breaks 'new'",
        "f: 'x: any' has no reason",
    ]
    assert holes({"f": {"is new": ["old"], "Return": ["old"], "x": ["old"]}}, right, {"old"}) == [
        "f: 'Return' is not in the order of the docstring",
        "f: 'x' occurs 2 times",
    ]
    assert holes({"f": {"Return x": ["old"]}}, right, {"old"}) == [
        "f: nothing breaks 'It is new.'",
        "f: nothing breaks 'x: any number.'",
    ]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_each_sentence_has_a_wrong_answer_or_a_reason_why_there_is_none(folder: Path) -> None:
    lab = labs.load(folder)
    right = specified((folder / lab.file).read_text())
    assert holes(mutants.sentences(lab), right, {mutant.name for mutant in mutants.mutants(lab)}) == []
