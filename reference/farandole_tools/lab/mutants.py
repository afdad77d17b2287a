"""Known wrong answers, each a small change of a right one: what a lab's checks must reject, and why.

A lab's ``wrong.py`` lists them as ``MUTANTS``. They change ``reference.py``, or, where the reference leaves the work to
the project's own functions, the right answer that ``wrong.py`` writes out as ``ORIGINAL``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent

from farandole_tools.lab.labs import Lab, module_at

WRONG = "wrong.py"

# Function or class of the file to complete → a phrase of each sentence of its docstring → the names of the wrong
# answers that break this sentence, or the reason why none can.
Sentences = Mapping[str, Mapping[str, list[str] | str]]


@dataclass(frozen=True)
class Mutant:
    """One known wrong answer.

    Attributes:
        name: a valid file name; unique in the lab.
        says: what its author misunderstood, in one sentence.
        fails: for each check that it must fail, a phrase of that check's message.
        changes: old text → new text, applied in order. Each old text must occur exactly once by then. It is a part of
            a line, or a block of whole lines; the indentation of a block is that of the place where it is found.
        ranks: the number of ranks on which the mistake shows; None for the number on which the lab is usually checked.
    """

    name: str
    says: str
    fails: Mapping[str, str]
    changes: Mapping[str, str] = field(repr=False)
    ranks: int | None = None

    def applied_to(self, text: str) -> str:
        """Return `text` with all changes made.

        Raises:
            ValueError: an old text does not occur, or occurs more than once; the message names the mutant.
        """
        for old, new in self.changes.items():
            try:
                text = _replaced(text, dedent(old).strip("\n"), dedent(new).strip("\n"))
            except ValueError as error:
                raise ValueError(f"mutant {self.name}: {error}") from error
        return text


def mutants(lab: Lab) -> list[Mutant]:
    """Return the lab's known wrong answers.

    Raises:
        ValueError: two have the same name.
    """
    found: list[Mutant] = module_at(lab.folder / WRONG).MUTANTS
    if twice := [name for name, times in Counter(mutant.name for mutant in found).items() if times > 1]:
        raise ValueError(f"lab {lab.name}: several mutants have the name {', '.join(twice)}")
    return found


def sentences(lab: Lab) -> Sentences:
    """Return which wrong answers break which sentence of the lab's file to complete."""
    found: Sentences = module_at(lab.folder / WRONG).SENTENCES
    return found


def original(lab: Lab) -> str:
    """Return the right answer that the lab's mutants change."""
    written_out: str | None = getattr(module_at(lab.folder / WRONG), "ORIGINAL", None)
    return written_out or (lab.folder / "reference.py").read_text(encoding="utf-8")


def write(lab: Lab, folder: Path) -> dict[str, Path]:
    """Write each mutant of `lab` to a file NAME.py in `folder`; return the files by name.

    Raises:
        ValueError: a mutant's old text does not occur exactly once; the message names lab and mutant.
    """
    text, files = original(lab), {}
    for mutant in mutants(lab):
        files[mutant.name] = folder / f"{mutant.name}.py"
        try:
            files[mutant.name].write_text(mutant.applied_to(text), encoding="utf-8")
        except ValueError as error:
            raise ValueError(f"lab {lab.name}: {error}") from error
    return files


def _replaced(text: str, old: str, new: str) -> str:
    """Replace the only occurrence of `old`. Later lines of a block are indented as the line on which it begins."""
    if "\n" in old:
        first, *others = (re.escape(line) for line in old.split("\n"))
        pattern = rf"^( *)(){first}" + "".join(rf"\n\1{line}" if line else r"\n" for line in others) + "$"
    else:
        pattern = rf"^( *)(.*?){re.escape(old)}"
    found = list(re.finditer(pattern, text, re.MULTILINE))
    times = len(found) if "\n" in old else text.count(old)
    if times != 1:
        raise ValueError(f"the old text must occur once, and occurs {times} times: {old}")
    (match,) = found
    indent, before = match.groups()
    if not new and not before and text[match.end() : match.end() + 1] == "\n":  # whole lines are removed
        return text[: match.start()] + text[match.end() + 1 :]
    first, *others = new.split("\n")
    block = "\n".join([indent + before + first, *(indent + line if line else "" for line in others)])
    return text[: match.start()] + block + text[match.end() :]
