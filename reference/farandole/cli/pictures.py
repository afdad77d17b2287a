"""Files that commands write pictures into: a wrong one is said at once, in one line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from farandole.errors import UsageError

SUFFIXES = (".png", ".svg", ".pdf")


def check(file: Path, option: str = "--out", suffixes: Sequence[str] = SUFFIXES) -> None:
    """Refuse what is no kind of picture, or lies in no folder.

    Raises:
        UsageError: which it is.
    """
    if file.suffix not in suffixes:
        ends = f"{', '.join(suffixes[:-1])} or {suffixes[-1]}"
        raise UsageError(f"{option} {file}: give a file whose name ends in {ends}")
    if not file.parent.is_dir():
        raise UsageError(f"{option} {file} cannot be written (No such file or directory): give another")


def save(file: Path, draw: Callable[[], object], option: str = "--out", suffixes: Sequence[str] = SUFFIXES) -> None:
    """Let `draw` write `file`.

    Raises:
        UsageError: as `check`, or it cannot be written.
    """
    check(file, option, suffixes)
    try:
        draw()
    except OSError as error:
        raise UsageError(f"{option} {file} cannot be written ({error.strerror}): give another") from error
