"""Files that are whole or not there, in JSON that every reader takes.

A file is written under a temporary name and then renamed, which is atomic: a full disk or a killed process leaves the
old one, or none. JSON (RFC 8259) has no number that is not finite, so what a diverged training measures becomes null.
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

# Errors of the disk, and not of the program: full, over the quota, read-only, failing.
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)


def json_text(value: Any, indent: int | None = None, default: Callable[[Any], Any] | None = None) -> str:
    """Return `value` as JSON, with null for every number that is not finite."""
    return json.dumps(_finite(value), indent=indent, default=default, allow_nan=False)


def write(file: Path, content: str | bytes) -> None:
    """Put `content` in the place of `file`, all at once.

    Raises:
        OSError: it could not be written; what was there before is as it was.
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
        UsageError: it cannot be read, or holds something else; the message ends with `what_to_do`.
    """
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{file} cannot be read ({error.strerror}): {what_to_do}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} is damaged (it is no JSON): {what_to_do}") from error
    if not isinstance(found, dict):
        raise UsageError(f"{file} is damaged (it holds no JSON object): {what_to_do}")
    return found


def read_lines(file: Path, what_to_do: str) -> list[dict[str, Any]]:
    """Return the JSON objects in `file`, one a line; a last line that was torn is left out.

    Raises:
        UsageError: as `read_object`.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UsageError(f"{file} cannot be read ({error.strerror}): {what_to_do}") from error
    except ValueError as error:
        raise UsageError(f"{file} is damaged (it is no text): {what_to_do}") from error
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            values = json.loads(line)
        except (ValueError, RecursionError) as error:
            if number == len(lines):
                break  # whoever wrote it was killed, or the disk was full
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
