"""Files that are written atomically, in JSON that every reader accepts.

A file is written under a temporary name and then renamed, which is atomic: a full disk or a killed process leaves the
old file, or none. JSON (RFC 8259) has only finite numbers, so a NaN or infinity from a diverged training becomes null.
"""

from __future__ import annotations

import errno
import json
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from farandole.errors import UsageError

# Errors of the disk, not of the program: disk full, quota exceeded, read-only, input/output error.
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)


def json_text(value: Any, indent: int | None = None, default: Callable[[Any], Any] | None = None) -> str:
    """Return `value` as JSON, with null for every number that is not finite."""
    return json.dumps(_finite(value), indent=indent, default=default, allow_nan=False)


def write(file: Path, content: str | bytes) -> None:
    """Replace `file` by `content` atomically.

    Raises:
        OSError: the file could not be written; its previous content is unchanged.
    """
    unfinished = file.with_name(file.name + ".unfinished")
    try:
        unfinished.write_bytes(content.encode() if isinstance(content, str) else content)
        unfinished.replace(file)
    except OSError as error:
        error.filename = str(file)
        with suppress(OSError):
            unfinished.unlink()
        raise


def read_object(file: Path, what_to_do: str) -> dict[str, Any]:
    """Return the JSON object in `file`.

    Raises:
        UsageError: the file cannot be read or does not hold a JSON object; the message ends with `what_to_do`.
    """
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{file} cannot be read ({error.strerror}): {what_to_do}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} is damaged (it is not valid JSON): {what_to_do}") from error
    if not isinstance(found, dict):
        raise UsageError(f"{file} is damaged (it is not a JSON object): {what_to_do}")
    return found


def read_lines(file: Path, what_to_do: str) -> list[dict[str, Any]]:
    """Return the JSON objects in `file`, one per line; an incomplete last line is left out.

    Raises:
        UsageError: as `read_object`.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UsageError(f"{file} cannot be read ({error.strerror}): {what_to_do}") from error
    except ValueError as error:
        raise UsageError(f"{file} is damaged (it is not text): {what_to_do}") from error
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:
            if number == len(lines):
                break  # the writing process was killed, or the disk was full
            raise UsageError(f"{file}, line {number}, is damaged: {what_to_do}") from error
        if not isinstance(values, dict):
            raise UsageError(f"{file}, line {number}, is damaged: {what_to_do}")
        found.append(values)
    return found


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return value
