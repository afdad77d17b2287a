"""Folders for records: each run claims its own, also if several runs start at the same time.

    no --out     one run creates runs/SCENARIO-DATE-TIME; the others find it there and append -2, -3, …
    --out X      one run locks X (with a system lock, which ends with its process); the others are refused

A folder that a run created and left empty is removed afterwards; a folder that existed before stays.
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

TRIES = 100  # another run may remove an empty parent folder just before it is used here


@dataclass(frozen=True)
class Claim:
    """A folder that only this process writes to, until it releases the folder or ends.

    Attributes:
        made: the folders that were created for it, parents first.
        lock: the file descriptor of the open folder that holds the lock; None: the file system has no locks.
    """

    folder: Path
    made: list[Path]
    lock: int | None

    def release(self) -> None:
        """Release the lock, and remove created folders that are empty."""
        for folder in reversed(self.made):
            with suppress(OSError):  # not empty
                folder.rmdir()
        if self.lock is not None:
            os.close(self.lock)


def claim(scenario: str, out: Path | None, resumes: bool = False) -> Claim:
    """Create and lock the folder for a record: `out`, or a new one below runs/.

    Args:
        resumes: whether `out` may hold a run that did not finish.

    Raises:
        UsageError: another run is writing to the folder, it is not empty, or it cannot be written.
    """
    for _ in range(TRIES):
        folder = new_folder(scenario, out, resumes)
        try:
            made = _make(folder, exclusively=out is None)
        except (FileExistsError, FileNotFoundError):
            continue  # another run created this folder first, or has removed a parent
        except OSError as error:
            raise UsageError(f"--out {folder} cannot be written ({error.strerror}): give another") from error
        try:
            lock = _lock(folder)
        except FileNotFoundError:
            continue
        claimed = Claim(folder, made, lock)
        try:
            new_folder(scenario, folder, resumes)  # meanwhile another run may have written there and ended
        except UsageError:
            claimed.release()
            raise
        return claimed
    raise UsageError(f"--out {folder} cannot be created, since other runs keep removing it: give another")


@contextmanager
def claimed(scenario: str, out: Path | None, resumes: bool = False) -> Iterator[Path]:
    """Claim a record's folder, as `claim` does, for the duration of the block."""
    mine = claim(scenario, out, resumes)
    try:
        yield mine.folder
    finally:
        mine.release()


@contextmanager
def reserved(scenario: str) -> Iterator[Path]:
    """Create a folder below runs/ for runs that claim it one after the other; at the end remove it if it is empty."""
    new = claim(scenario, None)
    if new.lock is not None:
        os.close(new.lock)
    try:
        yield new.folder
    finally:
        Claim(new.folder, new.made, None).release()


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Lock an existing folder, whatever it contains, for the duration of the block.

    Raises:
        UsageError: another process has locked it.
    """
    lock = _lock(folder)
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)


def _make(folder: Path, exclusively: bool) -> list[Path]:
    """Create the folder and its parents; return those that did not exist."""
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
            if not each.is_dir():  # some systems raise this for an existing folder that is read-only
                raise
        else:
            made.append(each)
    return made


def _lock(folder: Path) -> int | None:
    """Lock the folder and return its file descriptor; None where the file system cannot lock folders, as some NFS.

    Raises:
        FileNotFoundError: the folder was removed meanwhile.
        UsageError: another process has locked the folder.
    """
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise UsageError(f"another run is writing to {folder}: give another --out, or wait until it ends") from None
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
