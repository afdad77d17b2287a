"""The entries of a folder of submissions: each is one, or has a reason why it cannot be judged."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from farandole.errors import UsageError
from farandole_tools.lab.contained import kit
from farandole_tools.lab.labs import Lab

ARCHIVES = {".zip", ".tar", ".gz", ".tgz", ".7z", ".rar", ".xz", ".bz2"}
MOST_BYTES = 2**20  # of one file of Python
LONGEST = 240  # bytes of a name that was written anew


@dataclass(frozen=True)
class Entry:
    """One submission.

    Attributes:
        name: of the file or the folder, as it is called; bytes that are not UTF-8 as \\xNN. No other entry has it.
        path: the file to judge; None if there is none.
        reason: why there is none.
        helpers: the other files of its folder belong to it.
    """

    name: str
    path: Path | None = None
    reason: str = ""
    helpers: bool = False


def entries(lab: Lab, folder: Path) -> list[Entry]:
    """Return every entry of a folder, in order of the names. Hidden ones are left out.

    Raises:
        UsageError: it is no folder, or empty.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder of submissions")
    names = [path for path in sorted(folder.iterdir()) if not path.name.startswith(".") and path.name != "__pycache__"]
    if not names:
        raise UsageError(f"{folder} is empty: a file of Python, or a folder with a {lab.file}, is one submission")
    found = [_entry(lab, path) for path in names]
    return [
        replace(entry, name=name, reason=writable(entry.reason))
        for entry, name in zip(found, _unique(writable(entry.name) for entry in found), strict=True)
    ]


def writable(text: str) -> str:
    """Return a text in which each byte or character that UTF-8 does not have is written as \\xNN or \\uNNNN."""
    try:
        return os.fsencode(text).decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # a surrogate that stands for no byte
        return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _unique(names: Iterable[str]) -> list[str]:
    """Return names that a file can have, and no two alike; those that are so already stay."""
    found: list[str] = []
    for name in names:
        number, short = 1, name.encode()[:LONGEST].decode(errors="ignore") if len(name.encode()) > 255 else name
        unique = short
        while unique in found:
            number += 1
            unique = f"{short} ({number})"
        found.append(unique)
    return found


def _entry(lab: Lab, path: Path) -> Entry:
    try:
        return _kind_of_entry(lab, path)
    except OSError as error:  # for instance a folder that the grader may not enter
        return Entry(path.name, reason=f"cannot be read: {error.strerror}")


def _kind_of_entry(lab: Lab, path: Path) -> Entry:
    if path.is_symlink():
        return Entry(path.name, reason="a link, which is not followed")
    if path.is_dir():
        return _in_folder(lab, path)
    if path.suffix.lower() in ARCHIVES:
        return Entry(path.name, reason="an archive: unpack it")
    if path.suffix != ".py":
        return Entry(path.name, reason="not a file of Python")
    if not path.is_file():
        return Entry(path.name, reason="not a file")  # a pipe, for instance, which would be read for ever
    return _judged(path.name, path, helpers=False)


def _in_folder(lab: Lab, folder: Path) -> Entry:
    wanted = folder / lab.file
    if wanted.is_file() and not wanted.is_symlink():
        return _judged(folder.name, wanted, helpers=True)
    inside = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    if not inside:
        return Entry(folder.name, reason=f"empty: {lab.file} is missing")
    if archives := [path.name for path in inside if path.suffix.lower() in ARCHIVES]:
        return Entry(folder.name, reason=f"holds an archive, {archives[0]}, and no {lab.file}: unpack it")
    deeper = [path for path in inside if path.name == lab.file]
    if deeper:
        return Entry(folder.name, reason=f"{lab.file} is in {deeper[0].parent.relative_to(folder)}/: move it up")
    if others := [path.name for path in inside if path.suffix in (".py", ".ipynb")]:
        return Entry(folder.name, reason=f"holds {', '.join(others[:3])} where {lab.file} is needed: rename it")
    return Entry(folder.name, reason=f"{lab.file} is missing")


def _judged(name: str, path: Path, helpers: bool) -> Entry:
    for each in kit.files(path, helpers):
        try:
            with each.open("rb"):
                pass
        except OSError as error:
            which = "" if each == path else f"{each.relative_to(path.parent)} "
            return Entry(name, reason=f"{which}cannot be read: {error.strerror}")
    size = path.stat().st_size
    if size > MOST_BYTES:
        return Entry(name, reason=f"{size:,} bytes, where {MOST_BYTES:,} are allowed")
    return Entry(name, path, helpers=helpers)
