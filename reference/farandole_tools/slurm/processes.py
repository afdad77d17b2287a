"""Which processes belong to a sandbox, and how they are ended.

A file of process ids goes stale: its writer is killed half-way, or the machine restarts and the numbers
belong to other processes. So the processes themselves are examined. Two marks identify them, and children inherit both:

- the variable MARK in the environment, with the sandbox's folder. The daemons are started with it, and
  the task prolog gives it to every task of a job;
- for slurmstepd and slurmscriptd, which write their titles over their environment, the name together
  with a working directory below the folder.
"""

from __future__ import annotations

import contextlib
import signal
import time
from pathlib import Path

import psutil

MARK = "FARANDOLE_SLURM_SANDBOX"


def processes(folder: Path) -> list[psutil.Process]:
    """Return the sandbox's daemons, its jobs' processes, and whatever those started. About 1 ms per 10 processes."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == str(folder) or (
                process.name().startswith("slurm") and Path(process.cwd()).is_relative_to(folder)
            ):
                found.append(process)
        except (psutil.Error, OSError):  # ended meanwhile, a zombie, or another user's
            continue
    return found


def daemons(folder: Path) -> dict[str, int]:
    """Process id by daemon: "munged", "slurmctld", and each slurmd under its node's name."""
    found = {}
    for process in processes(folder):
        with contextlib.suppress(psutil.Error):
            match process.cmdline():
                case [program, "-N", node] if Path(program).name == "slurmd":
                    found[node] = process.pid
                case [program, *_] if Path(program).name in ("munged", "slurmctld"):
                    found[Path(program).name] = process.pid
    return found


def end(folder: Path) -> list[psutil.Process]:
    """Ends all of them: TERM, and KILL after 2 s; returns those that live on 10 s later (none, normally).

    It looks again and again, because a job may be starting processes while it goes on, and believes that
    none is left when it has seen none twice: a look can miss a process that is just being forked.
    """
    for number, patience in ((signal.SIGTERM, 2.0), (signal.SIGKILL, 10.0)):
        told: set[psutil.Process] = set()
        empty_looks = 0
        deadline = time.monotonic() + patience
        while empty_looks < 2 and time.monotonic() < deadline:
            left = set(processes(folder))
            for process in left - told:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(number)  # psutil looks first whether the id is still this process
            told |= left
            empty_looks = 0 if left else empty_looks + 1
            time.sleep(0.05)
    return processes(folder)
