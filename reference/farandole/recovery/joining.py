"""Asking a training that runs for one more worker, from outside: `farandole join RUN`.

    outside       a file in the run's folder                          …  reads the logbook
    the centre    finds it where the workers exchange their losses, and all make room
                  a spare takes the place, or a process is started    …  writes down who has joined

In MPI a process could connect by itself (MPI_Comm_connect), but what two mpiruns of Open MPI 5 have started do not find
each other. So what comes from outside is only the wish, and who comes is started from within (`runtime.newcomer`). The
folder is where every rank of the run can reach it. Cost: the centre lists it every few steps.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from farandole.errors import LaunchError, UsageError
from farandole.recovery.logbook import Line, Logbook
from farandole.recovery.options import ElasticOptions

NAP_S = 0.1
PREFIX = "join-"


@dataclass(frozen=True)
class Newcomer:
    """Who has joined: a process that was started, or a spare (`rank` is None); `step` is its first."""

    rank: int | None
    step: int


def take(folder: Path) -> int:
    """How many workers have been asked for since the last time. Called by the centre alone."""
    asked = list(folder.glob(PREFIX + "*"))
    for each in asked:
        each.unlink(missing_ok=True)
    return len(asked)


def ask(folder: Path, timeout_s: float, announce: Callable[[str], None]) -> Newcomer:
    """Ask the training that writes its record in `folder` for one more worker, and wait until that has taken a step.

    Raises:
        UsageError: it is over, or not one that a worker can join.
        LaunchError: nobody has joined in `timeout_s` seconds.
    """
    _check(folder)
    asked = folder / (PREFIX + uuid.uuid4().hex)
    began = time.time()
    asked.touch()
    deadline = time.monotonic() + timeout_s
    said = 0
    try:
        while True:
            lines = [line for line in Logbook(folder / "logbook.jsonl").lines() if line.when >= began]
            sent_for = [line for line in lines if line.what == "sent for"]
            for line in sent_for[said:]:
                announce(f"rank {line.rank} has been sent for, at step {line.step}")
            said = len(sent_for)
            if found := newcomer(lines):
                return found
            if (folder / "summary.json").exists():
                raise LaunchError(f"{folder}: the training has ended, and nobody has joined it")
            if time.monotonic() > deadline:
                happened = "it has not been asked: does it still run?" if asked.exists() else "see its logbook.jsonl"
                raise LaunchError(f"{folder}: nobody has joined within {timeout_s:g} s; {happened}")
            time.sleep(NAP_S)
    finally:
        asked.unlink(missing_ok=True)


def newcomer(lines: Sequence[Line]) -> Newcomer | None:
    """Who has joined and taken a step, by what was written since somebody was asked for; None: nobody yet."""
    enlarged = next((line.when for line in lines if line.what == "enlarged"), None)
    if enlarged is None:
        return None
    since = [line for line in lines if line.when >= enlarged]
    joined = next((line for line in since if line.what == "joined"), None)
    if joined is None and any(line.what == "sent for" for line in since):
        return None
    came = joined.when if joined else enlarged
    first = next((line for line in since if line.what == "first step" and line.when >= came), None)
    return Newcomer(joined.rank if joined else None, first.step) if first else None


def _check(folder: Path) -> None:
    try:
        options = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError):
        raise UsageError(f"{folder} is no run's folder: give the one that a run writes its record in") from None
    if not {field.name for field in fields(ElasticOptions)} <= options.keys():
        raise UsageError(f"{folder}: nobody can join this run; a worker can join membership and backup")
    if (folder / "summary.json").exists():
        raise UsageError(f"{folder}: the training is over; start another one")
