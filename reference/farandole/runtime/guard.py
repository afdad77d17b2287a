"""Temporary folders that are removed even if the process that uses them is killed.

SIGKILL cannot be caught, and a signal that arrives while a launch waits in a thread ends the process at once. So a
small second process, the guard, waits for the launcher's end and then does the clean-up that the launcher could not do:

    launcher ──── pipe ────→ guard (sh): reads until the pipe is closed
        removes its folder, closes the pipe        →  the guard has nothing to do
        is killed, which closes the pipe           →  the guard ends the launch's processes, then removes the folder

Cost: the start of a shell, about a millisecond. If the guard is killed too, as by ``scancel --signal=KILL``, the folder
stays.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from farandole.runtime import processes, rank, surroundings

# $0 is the folder. The program that replaces the shell inherits its ignored signals.
WATCH = 'trap "" HUP INT QUIT TERM; read -r _; [ -d "$0" ] && exec "$@"'


@contextmanager
def temporary_folder(prefix: str, within: str | None = None, launch: str = "") -> Iterator[Path]:
    """Create a folder that is removed with its contents at the end of the block, or when this process ends.

    Args:
        within: the folder to create it in. [default: the system's for temporary files]
        launch: a launch's number; if this process is killed, the launch's processes are ended first.

    Raises:
        UsageError: the folder cannot be created, or there is too little room in it.
    """
    folder = surroundings.temporary_folder(prefix, within)
    guard = _start(folder, launch)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if guard and guard.stdin:
            guard.stdin.close()
            guard.wait()


def _start(folder: Path, launch: str) -> subprocess.Popen[bytes] | None:
    environment = dict(os.environ)
    environment.pop(rank.LAUNCH, None)  # a guard started by a rank must survive the end of that rank's launch
    clean_up = [sys.executable, "-P", "-m", "farandole.runtime.guard", str(folder), launch]
    with suppress(OSError):  # no shell, or no further process allowed: continue without a guard
        return subprocess.Popen(
            ["/bin/sh", "-c", WATCH, str(folder), *clean_up],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    return None


def main() -> None:
    folder, launch = sys.argv[1:]
    if launch:
        processes.end_all(rank.LAUNCH, launch)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
