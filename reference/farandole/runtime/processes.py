"""Processes and cores: above all, ending every process of a launch, wherever it has gone.

MPI launchers put each rank into a process group of its own, so killing the launcher's group does
not reach the ranks. Every process of a launch carries the launch's number in its environment;
that is how they are found.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import psutil

GRACE_S = 2.0


def available_cores() -> int:
    """The cores this process may use (all of them where the system cannot restrict it)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def find(variable: str, value: str) -> list[psutil.Process]:
    """This user's processes whose environment has `variable`=`value`, the calling one left out."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(variable) == value:
                found.append(process)
        except (psutil.Error, OSError):
            continue  # another user's, or gone in the meantime
    return [process for process in found if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]


def end(processes: Iterable[psutil.Process], grace_s: float = GRACE_S) -> None:
    """Ask the processes to stop, and kill those still there after `grace_s` seconds."""
    processes = list(processes)
    for process in processes:
        try:
            process.terminate()
        except psutil.NoSuchProcess:
            continue
    _, alive = psutil.wait_procs(processes, timeout=grace_s)
    for process in alive:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(alive, timeout=grace_s)
