"""Processes and cores: above all, ending every process of a launch, wherever it has gone.

MPI launchers put each rank into its own process group, so killing the launcher's group does
not reach the ranks. Every process of a launch carries the launch's number in its environment;
that is how they are found.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress

import psutil

GRACE_S = 2.0
ROUNDS = 5  # number of searches for processes that were started meanwhile
POLL_S = 0.02
PR_SET_PDEATHSIG = 1  # linux/prctl.h


def wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Wait for the end of a process that this one has started, at most `seconds`.

    `Popen.wait` looks up to twenty times a second; a descriptor of the process wakes this one when it ends (Linux).
    """
    try:
        end = os.pidfd_open(process.pid)
    except (AttributeError, OSError):
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        return
    try:
        poll = select.poll()
        poll.register(end, select.POLLIN)
        poll.poll(seconds * 1000)
    finally:
        os.close(end)


def available_cores() -> int:
    """Return the cores this process may use (all of them where the system cannot restrict it)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def find(variable: str, value: str) -> list[psutil.Process]:
    """Return this user's processes whose environment has `variable`=`value`, the calling one left out."""
    found = []
    for pid in psutil.pids():
        try:
            if pid != os.getpid() and _has(pid, variable, value):
                found.append(psutil.Process(pid))
        except (psutil.Error, OSError):
            continue  # another user's, or gone in the meantime
    return [process for process in found if _lives(process)]


def of_session(leader: int) -> list[psutil.Process]:
    """Return the processes of the session that process `leader` began, which may have ended."""
    found = []
    for pid in psutil.pids():
        with suppress(psutil.Error, OSError):  # gone in the meantime
            if os.getsid(pid) == leader:
                found.append(psutil.Process(pid))
    return [process for process in found if _lives(process)]


def _has(pid: int, variable: str, value: str) -> bool:
    """Return whether the environment of a process has `variable`=`value`. Each launch looks at all processes."""
    if sys.platform == "linux":
        with open(f"/proc/{pid}/environ", "rb") as environment:
            return f"{variable}={value}".encode() in environment.read().split(b"\0")
    return psutil.Process(pid).environ().get(variable) == value


def end(processes: Iterable[psutil.Process], grace_s: float = GRACE_S) -> None:
    """Terminate the processes, and kill those still running after `grace_s` seconds."""
    alive = list(processes)
    for stop in (psutil.Process.terminate, psutil.Process.kill):
        for process in alive:
            with suppress(psutil.NoSuchProcess):
                stop(process)
        deadline = time.monotonic() + grace_s
        while (alive := [process for process in alive if _lives(process)]) and time.monotonic() < deadline:
            time.sleep(POLL_S)


def end_all(variable: str, value: str, grace_s: float = GRACE_S) -> None:
    """End this user's processes whose environment has `variable`=`value`, and processes that they start meanwhile."""
    for _ in range(ROUNDS):
        if not (found := find(variable, value)):
            return
        end(found, grace_s)


def end_with_parent() -> None:
    """Called in a new process: ask the kernel to end it when the one that started it is gone (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _lives(process: psutil.Process) -> bool:
    """Return whether the process still runs; a zombie does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
