"""The failures of a training, and the processes that joined it, as the record tells them: functions of the event log.

A failure lies between two starts. Its lines are written by the rank itself if it was told to fail, and by the ranks
that detect it. From the next start, and the first step after it, follow the time of recovery and the steps lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from farandole.recovery.events import UNKNOWN, Line
from farandole.runtime.faults import PARTITION


@dataclass(frozen=True)
class Fault:
    """A failure as the record tells it: times in seconds from the failure, steps done again."""

    rank: int
    step: int
    kind: str
    detected_s: float | None
    resumed_s: float | None
    steps_lost: int


@dataclass(frozen=True)
class Joined:
    """A process that joined later: its first step, and the seconds from the request until that step was done."""

    rank: int
    step: int
    joined_s: float


def faults(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Return the failures in order of time: the fields of `Fault`.

    Args:
        lines: of all starts, in order of time.
    """
    found = _retried(lines)
    for between, start in _before_each_start(lines):
        if _planned(between):
            continue
        noticed = [line for line in between if line.what in ("noticed", "departed")]
        resumed = next((line for line in lines if line.what == "first step" and line.when >= start.when), None)
        for failed in _failed(between):
            seen = [line for line in noticed if line.rank in (failed.rank, UNKNOWN) and line.when >= failed.when]
            detected_s = seen[0].when - failed.when if seen and failed.what == "failure" else None
            resumed_s = resumed.when - failed.when if resumed else None
            steps_lost = max(0, failed.step - start.step)
            found.append((failed, Fault(failed.rank, failed.step, failed.kind, detected_s, resumed_s, steps_lost)))
    return [asdict(fault) for _, fault in sorted(found, key=lambda each: each[0].when)]


def joined(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Return the processes that have joined and taken a step: the fields of `Joined`."""
    requested = {line.rank: line.when for line in lines if line.what == "sent for"}
    found = []
    for entry in (line for line in lines if line.what == "joined"):
        after = [line for line in lines if line.when > entry.when]
        gone = (line for line in after if (line.what, line.rank) == ("departed", entry.rank))
        first = next((line for line in after if line.what == "first step"), None)
        if entry.rank in requested and first and all(line.when > first.when for line in gone):
            found.append(asdict(Joined(entry.rank, first.step, first.when - requested[entry.rank])))
    return found


def _before_each_start(lines: Sequence[Line]) -> list[tuple[list[Line], Line]]:
    """Return each start that may follow failures, with the lines between the previous start and it.

    A rank that died before the first start belongs to it if it was missed before it, and else to the second.
    """
    starts = [line for line in lines if line.what == "start"]
    begins = [line.when for line in starts]
    before_all = [line for line in lines if begins and line.when < begins[0]]
    missed = any(line.what in ("noticed", "departed") for line in before_all)
    found = [(before_all, starts[0])] if missed else []
    for begin, start in zip(begins, starts[1:], strict=False):
        between = [line for line in lines if begin <= line.when < start.when]
        found.append((between if missed or found else before_all + between, start))
    return found


def _planned(lines: Sequence[Line]) -> bool:
    """Return whether the start after these lines follows no failure: a stop was requested, or a process joins."""
    kinds = {line.what for line in lines}
    return "stop" in kinds or bool(kinds & {"enlarged", "undone", "joined"} and not kinds & {"noticed", "departed"})


def _retried(lines: Sequence[Line]) -> list[tuple[Line, Fault]]:
    """Return one rank's failures that another try has made good, and its partitions that healed unnoticed."""
    found = []
    for again in (line for line in lines if line.what == "retried"):
        for failed in [line for line in lines if _is_about(again, line) and line.when <= again.when][-1:]:
            detected_s = None if failed.kind == PARTITION else 0.0
            took_s = again.when - failed.when
            found.append((failed, Fault(failed.rank, failed.step, failed.kind, detected_s, took_s, 0)))
    return found


def _is_about(again: Line, line: Line) -> bool:
    return (line.what, line.rank, line.step) == ("failure", again.rank, again.step)


def _failed(lines: Sequence[Line]) -> list[Line]:
    """Return one line for each rank that has failed between two starts."""
    noticed = [line for line in lines if line.what == "noticed"]
    retried = [line for line in lines if line.what == "retried"]
    # An exception after a death has been noticed follows from that death.
    own = [
        line
        for line in lines
        if line.what == "failure"
        and not (line.kind == "raise" and noticed and noticed[0].when < line.when)
        and not any(_is_about(again, line) for again in retried)
    ]
    by_rank: dict[int, Line] = {}
    departed = [line for line in lines if line.what == "departed"]
    known = {line.rank for line in departed}  # certain, while a noticed rank may only have been ended with the job
    # Not every rank that notices a death knows how far the dead one had come; a spare knows of no step.
    reached = {rank: max(line.step for line in [*noticed, *departed] if line.rank == rank) for rank in known}
    missed = [replace(line, step=reached[line.rank]) for line in noticed if line.rank in known]
    for line in [*own, *missed, *departed] or [line for line in noticed if line.rank != UNKNOWN] or noticed:
        by_rank.setdefault(line.rank, line)
    # If a whole node is lost no rank may be left to notice: then only the last sign of life is known.
    last = lines[-1]
    return [*by_rank.values()] or [Line(last.when, "noticed", UNKNOWN, max(line.step for line in lines), "lost")]
