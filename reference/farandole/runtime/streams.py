"""Standard output and error that cannot end a run: closed, full, left by their reader, or without a code for ×.

A training takes hours and its table a line: so what cannot be written is dropped, the run goes on to its record, and
the command says at its end that output is missing and exits with 1 (`secure`, `lost`).
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
import unicodedata
from typing import Any

PLAIN = "farandole.plain"  # the name of `_plain` as Python's codecs know it
SIGNS = {
    "×": "x", "–": "-", "−": "-", "…": "...", "→": "->", "←": "<-", "≤": "<=", "≥": ">=", "·": ".", "’": "'",
    "✓": "+", "✗": "-", "α": "alpha", "β": "beta", "γ": "gamma", "δ": "delta", "η": "eta", "μ": "mu", "σ": "sigma",
    "τ": "tau", "²": "^2", "─": "-", "━": "-", "│": "|", "┃": "|",
}  # fmt: skip


class Forgiving(io.FileIO):
    """A stream whose first failure is kept in `error`; from then on what is written is dropped."""

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
    """From now on nothing that is written to standard output or error raises. Streams that were replaced stay."""
    _reopen_closed()
    codecs.register_error(PLAIN, _plain)
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        stream, original = getattr(sys, name), getattr(sys, f"__{name}__")
        if stream is original and not isinstance(_raw(stream), Forgiving):
            setattr(sys, name, _secured(descriptor, stream))


def lost() -> str | None:
    """Why standard output, as `secure` has it, is not whole; None if it is."""
    sys.stdout.flush()
    error = getattr(_raw(sys.stdout), "error", None)
    if error is None:
        return None
    reasons = {errno.EBADF: "it is closed", errno.EPIPE: "its reader has left"}
    return f"standard output could not be written: {reasons.get(error.errno, error.strerror)}"


def left_by_reader() -> bool:
    """Whether the cause is a reader that had seen enough, as ``| head`` does."""
    return getattr(getattr(_raw(sys.stdout), "error", None), "errno", None) == errno.EPIPE


def _reopen_closed() -> None:
    """Give closed descriptors 0 to 2 a meaning, lest a file that is opened next becomes standard output."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            # The wrong way round: reading or writing still fails, here and in child processes.
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
    """Encode what the stream's encoding has no code for: a sign like it, or "?"; of a file's name its own bytes."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return b"".join(map(_code, error.object[error.start : error.end])), error.end


def _code(letter: str) -> bytes:
    if "\udc80" <= letter <= "\udcff":  # how Python keeps a byte of a name that is no UTF-8
        return bytes([ord(letter) - 0xDC00])
    if "\u2500" <= letter <= "\u257f":  # a table's lines
        return SIGNS.get(letter, "+").encode()
    return SIGNS.get(letter, unicodedata.normalize("NFKD", letter)).encode("ascii", "ignore") or b"?"
