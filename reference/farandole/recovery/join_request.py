"""A request from outside for one more worker in a running training: `farandole join RUN`.

    outside           a file in the run's folder, until it is answered         …  reads the event log
    the coordinator   finds it where the workers exchange their losses, and all add a slot
                      a spare takes the slot, or a process is started          …  logs the rank that answers it

In MPI a process could connect by itself (MPI_Comm_connect), but processes of two mpiruns of Open MPI 5 do not find
each other. So only the request comes from outside, and the process is started from within (`runtime.joining`). Every
rank of the run can reach the folder.

The file stays there: should the coordinator die, the next one finds it, too, and the event log says whether it has
been answered. Requests are answered one after the other, each when no other process is starting. Cost: the
coordinator lists the folder every few steps.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

from farandole.errors import LaunchError, UsageError
from farandole.recovery.event_log import EventLog
from farandole.recovery.events import Line
from farandole.recovery.options import MembershipOptions
from farandole.runtime.files import read_object

NAP_S = 0.1
PREFIX = "join-"


@dataclass(frozen=True)
class Answer:
    """The answer to a request, as far as the event log has it.

    Attributes:
        rank: the new worker.
        is_started: whether it is a process that is started, not a spare.
        sent_at: the step at which it was requested.
        step: its first step, done; None: not yet.
        is_lost: whether it has died before that.
    """

    rank: int
    is_started: bool
    sent_at: int
    step: int | None = None
    is_lost: bool = False


def next_request(folder: Path, event_log: EventLog) -> str | None:
    """Return the next request to answer; None: there is none. Called by the coordinator alone."""
    asked = sorted(folder.glob(PREFIX + "*"))
    if not asked:
        return None
    answered = {line.kind for line in event_log.lines() if line.what == "asked for"}
    return next((each.name for each in asked if each.name not in answered), None)


def ask(folder: Path, timeout_s: float, announce: Callable[[str], None]) -> Answer:
    """Request one more worker for the training that writes to `folder`; return once that worker has taken a step.

    Raises:
        UsageError: the training is over, or no worker can join it.
        LaunchError: no worker has joined, or not in `timeout_s` seconds.
    """
    _check(folder)
    request = folder / f"{PREFIX}{time.time_ns():020}-{uuid.uuid4().hex}"  # the order of names is that of the times
    try:
        request.touch()
    except OSError as error:
        raise UsageError(f"{folder} cannot be written to ({error.strerror}): ask as the run's user") from error
    deadline = time.monotonic() + timeout_s
    announced = False
    try:
        while True:
            is_over = (folder / "summary.json").exists()
            answer = answer_to(request.name, EventLog(folder / "logbook.jsonl").lines())
            if answer and answer.step is not None:
                return answer
            if answer and answer.is_lost:
                raise LaunchError(f"{folder}: rank {answer.rank}, which was to join, has died: ask again")
            if answer and answer.is_started and not announced:
                announce(f"rank {answer.rank} has been requested, at step {answer.sent_at}")
                announced = True
            if is_over:
                raise LaunchError(f"{folder}: the training has ended, and no worker has joined it")
            if time.monotonic() > deadline:
                happened = "see its logbook.jsonl" if answer else "it has not noticed the request: does it still run?"
                raise LaunchError(f"{folder}: no worker has joined within {timeout_s:g} s; {happened}")
            time.sleep(NAP_S)
    finally:
        request.unlink(missing_ok=True)


def answer_to(request: str, lines: Sequence[Line]) -> Answer | None:
    """Return the answer to a request; None: the training has not noticed it yet."""
    asked = next((line for line in lines if (line.what, line.kind) == ("asked for", request)), None)
    if asked is None:
        return None
    after = lines[lines.index(asked) + 1 :]
    is_started = any((line.what, line.rank) == ("sent for", asked.rank) for line in after)
    answer = Answer(asked.rank, is_started, asked.step)
    has_joined = not is_started
    for line in after:
        if line.what == "first step" and has_joined:
            return replace(answer, step=line.step)
        if line.rank == asked.rank and line.what == "departed":
            return replace(answer, is_lost=True)
        has_joined = has_joined or (line.rank == asked.rank and line.what == "joined")
    return answer


def _check(folder: Path) -> None:
    if not (folder / "config.json").exists():
        raise UsageError(f"{folder} is no run's folder: give the one that a run writes its record in")
    options = read_object(folder / "config.json", "give the folder of another run")
    if not {field.name for field in fields(MembershipOptions)} <= options.keys():
        raise UsageError(f"{folder}: a worker can join membership and backup, and not this run")
    if (folder / "summary.json").exists():
        raise UsageError(f"{folder}: the training is over; start another one")
