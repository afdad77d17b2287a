"""Temporary folders that do not stay behind, not even if the process that uses them is killed.

SIGKILL cannot be caught, and a signal that arrives while a launch waits in a thread ends the process at once. So a
small process beside it, the guard, waits for its end and then does what it could not do:

    launcher ──── pipe ────→ guard (sh): reads until the pipe is closed
        removes its folder, closes the pipe        →  nothing is left to do
        is killed, and so the pipe is closed       →  ends the launch's processes, then removes the folder

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

# $0 is the folder. What the shell ignores, the program that takes its place ignores, too.
WATCH = 'trap "" HUP INT QUIT TERM; read -r _; [ -d "$0" ] && exec "$@"'


@contextmanager
def temporary_folder(prefix: str, within: str | None = None, launch: str = "") -> Iterator[Path]:
    """A new folder, which is removed with all it holds at the end of the block, or of this process.

    Args:
        within: the folder to make it in. [default: the system's for temporary files]
        launch: a launch's number; its processes are ended first, if this process is killed.

    Raises:
        UsageError: it cannot be made, or there is no room in it.
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
    environment.pop(rank.LAUNCH, None)  # within a rank it must survive the end of that rank's launch
    clean_up = [sys.executable, "-P", "-m", "farandole.runtime.guard", str(folder), launch]
    with suppress(OSError):  # no shell, or no process more: then without
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
