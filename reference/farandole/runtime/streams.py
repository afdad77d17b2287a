"""Standard output and error whose failures cannot end a run: closed, full, left by their reader, or unable to encode ×.

A training takes hours, and its table is only the report. So output that cannot be written is dropped and the run
completes its record. At its end the command reports that output is missing and exits with 1 (`secure`, `lost`).
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import shutil
import sys
import unicodedata
from typing import Any

LEAST_COLUMNS = 60  # in narrower tables the figures would be cut off; a terminal breaks long lines without loss
PLAIN = "farandole.plain"  # the name under which `_plain` is registered with Python's codecs
SIGNS = {
    "×": "x", "–": "-", "−": "-", "…": "...", "→": "->", "←": "<-", "≤": "<=", "≥": ">=", "·": ".", "’": "'",
    "✓": "+", "✗": "-", "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "η": "eta", "μ": "mu", "σ": "sigma",
    "τ": "tau", "²": "^2", "─": "-", "━": "-", "│": "|", "┃": "|",
}  # fmt: skip


class Forgiving(io.FileIO):
    """A stream that stores its first failure in `error` and drops all later output."""

    error: OSError | None = None

    def write(self, data: Any) -> int:
        if self.error is None:
            try:
                return super().write(data)
            except BlockingIOError:
                raise
            except OSError as error:
                self.error = error
        return memoryview(data).nbytes


def secure() -> None:
    """Make writes to standard output and error never raise. Streams that were replaced before stay as they are."""
    _reopen_closed()
    codecs.register_error(PLAIN, _plain)
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        stream, original = getattr(sys, name), getattr(sys, f"__{name}__")
        if stream is original and not isinstance(_raw(stream), Forgiving):
            setattr(sys, name, _secured(descriptor, stream))


def columns() -> int:
    """Return the width for tables and help texts: the terminal's, or $COLUMNS, or 80; at least `LEAST_COLUMNS`."""
    return max(LEAST_COLUMNS, shutil.get_terminal_size().columns)


def widen() -> None:
    """Set $COLUMNS, which rich and cyclopts read, to `columns()` if its value or the terminal is too narrow."""
    if "COLUMNS" in os.environ or shutil.get_terminal_size().columns < LEAST_COLUMNS:
        os.environ["COLUMNS"] = str(columns())


def lost() -> str | None:
    """Return why standard output, after `secure`, is incomplete; None if it is complete."""
    sys.stdout.flush()
    error = getattr(_raw(sys.stdout), "error", None)
    if error is None:
        return None
    reasons = {errno.EBADF: "it is closed", errno.EPIPE: "its reader has left"}
    return f"standard output could not be written: {reasons.get(error.errno, error.strerror)}"


def left_by_reader() -> bool:
    """Return whether output was lost because its reader ended, as with ``| head``."""
    return getattr(getattr(_raw(sys.stdout), "error", None), "errno", None) == errno.EPIPE


def _reopen_closed() -> None:
    """Reopen closed descriptors 0 to 2, so that no file opened later becomes standard output."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            # Opened in the wrong mode on purpose: reading or writing still fails, here and in child processes.
            opened = os.open(os.devnull, os.O_RDONLY if descriptor else os.O_WRONLY)
            os.set_inheritable(opened, True)


def _secured(descriptor: int, stream: io.TextIOWrapper | None) -> io.TextIOWrapper:
    raw = Forgiving(descriptor, "w", closefd=False)
    encoding = stream.encoding if stream else "utf-8"
    if stream and stream.write_through:  # python -u
        return io.TextIOWrapper(raw, encoding, PLAIN, write_through=True)
    by_line = descriptor == 2 or raw.isatty()
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, PLAIN, line_buffering=by_line)


def _raw(stream: Any) -> Any:
    buffer = getattr(stream, "buffer", None)
    return getattr(buffer, "raw", buffer)


def _plain(error: UnicodeError) -> tuple[bytes, int]:
    """Encode characters that the stream's encoding lacks, as similar text or "?"; raw bytes of names stay unchanged."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return b"".join(map(_code, error.object[error.start : error.end])), error.end


def _code(letter: str) -> bytes:
    if "\udc80" <= letter <= "\udcff":  # Python's surrogate escape for a byte that is not valid UTF-8
        return bytes([ord(letter) - 0xDC00])
    if "\u2500" <= letter <= "\u257f":  # box drawing, for the lines of tables
        return SIGNS.get(letter, "+").encode()
    return SIGNS.get(letter, unicodedata.normalize("NFKD", letter)).encode("ascii", "ignore") or b"?"
