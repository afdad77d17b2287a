"""Find phrases that our texts avoid, as codespell finds words: `python tools/phrases.py PATH …`.

A line of tools/phrases.txt is a regular expression, "->" and advice. A blank in it is any white space, also the end of
a line with the next one's indentation and "#", since texts are wrapped. The exit code is 1 if a phrase was found.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

DICTIONARY = Path(__file__).with_name("phrases.txt")
ENDS = {".md", ".py", ".sbatch", ".sh"}
BLANK = r"(?:[ \t]+|[ \t]*\n[ \t#>]*)"


def phrases(text: str) -> list[tuple[re.Pattern[str], str]]:
    """Return the expressions of a dictionary, with their advice."""
    pairs = (line.split("->", 1) for line in text.splitlines() if line)
    return [(re.compile(expression.replace(" ", BLANK)), advice) for expression, advice in pairs]


def find(text: str, dictionary: list[tuple[re.Pattern[str], str]]) -> Iterator[tuple[int, str, str]]:
    """Yield line, phrase and advice of each phrase of the dictionary in a text."""
    for expression, advice in dictionary:
        for found in expression.finditer(text):
            yield text.count("\n", 0, found.start()) + 1, " ".join(found[0].split()), advice


def files(paths: list[str]) -> Iterator[Path]:
    """Yield these files, and the texts and programs in these folders."""
    for path in map(Path, paths):
        inside = (file for file in path.rglob("*") if file.suffix in ENDS and file.is_file())
        yield from sorted(inside) if path.is_dir() else [path]


def main(paths: list[str]) -> int:
    """Print the phrases in these files and folders; return the exit code."""
    dictionary, total = phrases(DICTIONARY.read_text(encoding="utf-8")), 0
    for file in files(paths):
        for line, phrase, advice in find(file.read_text(encoding="utf-8"), dictionary):
            total += 1
            print(f"{file}:{line}: {phrase} → {advice}")
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
