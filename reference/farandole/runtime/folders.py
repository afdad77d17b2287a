"""A record's folder belongs to one run: made and held so that of several that start at once each has its own.

    no --out     runs/SCENARIO-DATE-TIME is made by one of them; the others find it there and take -2, -3, …
    --out X      one of them holds X (a lock of the system's, gone with the process that has it); the others are refused

A folder that was made here and in which nothing was written is removed afterwards; one that was there before stays.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from farandole.errors import UsageError
from farandole.runtime.record import new_folder

TRIES = 100  # a parent folder may be removed by another run that leaves it empty, just when it is needed


@dataclass(frozen=True)
class Claim:
    """A folder that is this process's to write in, until it is released or the process ends.

    Attributes:
        made: what did not exist before: the folder, and its parents before it.
        lock: the open folder that holds the lock.
    """

    folder: Path
    made: list[Path]
    lock: int | None

    def release(self) -> None:
        """Let others have the folder; one that was made and is empty is removed."""
        for folder in reversed(self.made):
            with suppress(OSError):  # not empty
                folder.rmdir()
        if self.lock is not None:
            os.close(self.lock)


def claim(scenario: str, out: Path | None, resumes: bool = False) -> Claim:
    """Make and hold the folder for a record: `out`, or a new one below runs/.

    Args:
        resumes: `out` may hold a run that did not finish.

    Raises:
        UsageError: another run is writing there, or it holds something already, or cannot be written.
    """
    for _ in range(TRIES):
        folder = new_folder(scenario, out, resumes)
        try:
            made = _make(folder, exclusively=out is None)
        except (FileExistsError, FileNotFoundError):
            continue  # another run was faster, or has removed a parent
        except OSError as error:
            raise UsageError(f"--out {folder} cannot be written ({error.strerror}): give another") from error
        try:
            lock = _lock(folder)
        except FileNotFoundError:
            continue
        claimed = Claim(folder, made, lock)
        try:
            new_folder(scenario, folder, resumes)  # by now another run may have written there, and ended
        except UsageError:
            claimed.release()
            raise
        return claimed
    raise UsageError(f"--out {folder} cannot be made: others keep removing it; give another")


@contextmanager
def claimed(scenario: str, out: Path | None, resumes: bool = False) -> Iterator[Path]:
    """`claim` for the duration of the block."""
    mine = claim(scenario, out, resumes)
    try:
        yield mine.folder
    finally:
        mine.release()


@contextmanager
def reserved(scenario: str) -> Iterator[Path]:
    """A new folder below runs/ for runs that each claim it in turn; at the end it is removed if it is empty."""
    new = claim(scenario, None)
    if new.lock is not None:
        os.close(new.lock)
    try:
        yield new.folder
    finally:
        Claim(new.folder, new.made, None).release()


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold a folder that exists, whatever is in it.

    Raises:
        UsageError: another process holds it.
    """
    lock = _lock(folder)
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)


def _make(folder: Path, exclusively: bool) -> list[Path]:
    """Make the folder and its parents; returns those that did not exist."""
    made = []
    for each in [*reversed(folder.parents), folder]:
        try:
            each.mkdir()
        except FileExistsError as error:
            if not each.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from error
            if exclusively and each == folder:
                raise
        except OSError:
            if not each.is_dir():  # some systems answer so for a folder that is there, but not to be written
                raise
        else:
            made.append(each)
    return made


def _lock(folder: Path) -> int | None:
    """Lock the folder and return it, open; None where the system locks no folders, as NFS may not.

    Raises:
        FileNotFoundError: it was removed meanwhile.
        UsageError: another process has locked it.
    """
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise UsageError(f"another run is writing to {folder}: give another --out, or wait for its end") from None
    except OSError:
        os.close(lock)
        return None
    try:
        is_same = os.path.samestat(os.fstat(lock), os.stat(folder))
    except FileNotFoundError:
        is_same = False
    if not is_same:
        os.close(lock)
        raise FileNotFoundError(folder)
    return lock
