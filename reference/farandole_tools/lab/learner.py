"""The learner's code: import it, hold what it prints, and explain its errors."""

from __future__ import annotations

import importlib.util
import io
import linecache
import sys
import traceback
import tracemalloc
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

from farandole_tools.lab.contained.wire import Remote, builtin_error
from farandole_tools.lab.labs import Wrong

PRINTED_BYTES = 100_000  # what a check keeps of a rank's output
MESSAGE_LENGTH = 400
MODULE = "farandole_submission"
NOT_IMPLEMENTED = "not implemented yet"  # how the message of a function that is not written begins


class Explained(Exception):
    """An error of a submission in another process, which has explained it there.

    Attributes:
        kind: "error" or "not implemented".
        text: one line for its author.
    """

    def __init__(self, kind: str, text: str) -> None:
        Exception.__init__(self, text)
        self.kind, self.text = kind, text


def explained(kind: str, text: str, name: str) -> Exception:
    """Return an exception that was explained elsewhere; it is also of the built-in class `name`, if that exists."""
    base = builtin_error(name)
    try:
        kinds: Any = type(name[:100], (Explained, base), {}) if base else Explained
        made: Exception = kinds(kind, text)
        return made
    except TypeError:  # two layouts that do not fit
        return Explained(kind, text)


def load(path: Path, harness: str = "") -> Any:
    """Import a submission; what it raises is its own.

    Its folder goes last on the path, so that its helpers are found and no file beside it can take
    the place of a library.

    Args:
        harness: the module whose `Harness` calls the submission, and is returned in its place.
    """
    sys.dont_write_bytecode = True  # nothing is left beside the submission
    sys.path.append(str(path.parent))
    spec = importlib.util.spec_from_file_location(MODULE, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE] = module
    try:
        spec.loader.exec_module(module)
    except ValueError as error:
        if "null bytes" not in str(error):
            raise
        raise SyntaxError(str(error)) from None  # as Python itself has it from 3.11.4 on
    return importlib.import_module(harness).Harness(module) if harness else module


def taken(answer: Iterable[Any], most: int) -> list[Any]:
    """Return the next elements, at most `most`, of what a submission has returned: one call, wherever it runs."""
    if isinstance(answer, Remote):
        return list(answer._taken(most))
    return list(islice(answer, most))


def current_line(path: Path, worker: int) -> str:
    """Say at which line of `path` this process's thread `worker` is, or nothing if it is elsewhere."""
    frame = sys._current_frames().get(worker)
    while frame is not None and frame.f_code.co_filename != str(path):
        frame = frame.f_back
    return f", at line {frame.f_lineno}: `{linecache.getline(str(path), frame.f_lineno).strip()}`" if frame else ""


def explain(error: BaseException, path: Path) -> str:
    """Return one line that tells the author of `path` what happened, and at which of their lines."""
    text = _what(error, path)
    if not is_not_implemented(error):
        text = "".join(f"{note}: " for note in reversed(getattr(error, "__notes__", []))) + text
    return text if len(text) <= MESSAGE_LENGTH else text[: MESSAGE_LENGTH - 1] + "…"


def is_not_implemented(error: BaseException) -> bool:
    if isinstance(error, Explained):
        return error.kind == "not implemented"
    return isinstance(error, NotImplementedError)


def _what(error: BaseException, path: Path) -> str:
    if isinstance(error, Wrong):
        return str(error)
    if isinstance(error, Explained):
        return error.text
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    if isinstance(error, SyntaxError) and not frames:
        where = f", at line {error.lineno}: `{(error.text or '').strip()}`" if error.lineno else ""
        return f"the file is not valid Python: {error.msg}{where}"
    if isinstance(error, NotImplementedError):
        codes = (frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__))
        names = [code.co_qualname for code in codes if code.co_filename == str(path)]  # Class.method, where it is one
        where = f": {names[-1]} in {path.name}" if names else ""
        return f"{NOT_IMPLEMENTED}{where}"
    if isinstance(error, AttributeError) and isinstance(error.obj, ModuleType) and error.obj.__name__ == MODULE:
        return f"there is no {error.name} in {path.name}: has it been renamed?"
    # Also the call of the function in which it happened: that one may be given, with the mistake in its argument.
    places = [f"{frame.lineno}: `{linecache.getline(str(path), frame.lineno or 0).strip()}`" for frame in frames[-2:]]
    line = ", at line " + ", called from line ".join(reversed(places)) if places else ""
    if isinstance(error, SystemExit):
        return f"the code ends the whole process (sys.exit or SystemExit){line}; let the function return instead"
    told = f"{type(error).__name__}: {_text(error)}".removesuffix(": ")
    return told + (line or "; raised by the check with what the function returned")


def _text(error: BaseException) -> str:
    try:
        return " ".join(str(error).split())
    except Exception:  # the learner's own exception class, with a mistake in its __str__
        return ""


@contextmanager
def peak_memory(found: list[int]) -> Iterator[None]:
    """Append to `found` how many bytes more than before this process takes within the body, at most."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        yield
        found.append(tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()


@contextmanager
def noting_peak(student: Any, found: list[int]) -> Iterator[None]:
    """Append to `found` how many bytes the submission takes within the body, at most, wherever it runs."""
    here = isinstance(student, ModuleType)
    with peak_memory(found) if here else student._peer.noting_peak(found):
        yield


@contextmanager
def kept_warnings(found: list[str]) -> Iterator[None]:
    """Append to `found` what this process is warned of within the body."""
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        yield
    found.extend(f"{each.category.__name__}: {each.message}" for each in noted)


@contextmanager
def noting_warnings(student: Any, found: list[str]) -> Iterator[None]:
    """Append to `found` the warnings that the submission causes within the body, in one call, wherever it runs."""
    here = isinstance(student, ModuleType)
    with kept_warnings(found) if here else student._peer.noting_warnings(found):
        yield


@contextmanager
def sharing_lists(student: Any, *given: list[Any]) -> Iterator[None]:
    """Change `given`, all lists with which the submission is called once in the body, as it does, wherever it runs.

    Otherwise lists are sent by value, and a submission that appends to its argument would do so unnoticed.
    """
    here = isinstance(student, ModuleType)
    with nullcontext() if here else student._peer.sharing_lists(given):
        yield


class _Capped(io.RawIOBase):
    """Keeps the first PRINTED_BYTES bytes in a file and forgets the rest."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=0)
        self._left = PRINTED_BYTES

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        if self._left > 0:
            kept = bytes(data)[: self._left]
            self._file.write(kept)
            self._left -= len(kept)
        return size


def hold_output(path: Path) -> None:
    """From here on, what Python code prints goes to `path`."""
    # In bytes beneath, since a program may also write to sys.stdout.buffer.
    buffered = io.BufferedWriter(_Capped(path))
    stream = io.TextIOWrapper(buffered, encoding="utf-8", errors="backslashreplace", line_buffering=True)
    sys.stdout = sys.stderr = stream
