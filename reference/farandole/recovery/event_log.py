"""What happened to a training, across all its starts: one line each, written by whoever is there.

A rank that dies says nothing, so those that notice write it down; a rank that is told to fail
(`--fail`) writes a moment before. A start that goes on from a checkpoint reads what went before: which
failures it comes after, how long they took, how many steps were lost, and which injected failures have
struck already, since each strikes once.

Lines are appended whole (O_APPEND), so that ranks may write at the same time, and a torn last line
costs only itself.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from farandole.errors import UsageError
from farandole.runtime.faults import Fail

UNKNOWN = -1  # rank

What = Literal[
    "start", "first step", "checkpoint", "stop", "failure", "noticed", "departed", "retried", "enlarged", "undone",
    "asked for", "sent for", "joined",
]  # fmt: skip


@dataclass(frozen=True)
class Line:
    """`what` happened at time of day `when` (seconds since 1970).

    Attributes:
        rank: whose line it is; of a failure, the rank that failed.
        step: of the training; of a start, the step it begins with.
        kind: of a failure: kill, raise, hang, or what was noticed of it: lost, silent, or ended. Of who was asked
            for, which request it answers (`join_request`).
    """

    when: float
    what: What
    rank: int
    step: int
    kind: str = ""


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
    """A process that has come later: its first step, done so many seconds after it was sent for."""

    rank: int
    step: int
    joined_s: float


@dataclass(frozen=True)
class EventLog:
    """The lines in `file`, which every rank must reach."""

    file: Path

    def write(self, what: What, rank: int, step: int, kind: str = "", when: float | None = None) -> None:
        """Append a line, and see to it that it outlives this process."""
        line = Line(time.time() if when is None else when, what, rank, step, kind)
        descriptor = os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            # The line break comes first: where the line before is torn, this one is whole nevertheless.
            os.write(descriptor, ("\n" + json.dumps(asdict(line))).encode())
        except OSError as error:
            error.filename = str(self.file)
            raise
        finally:
            os.close(descriptor)

    def lines(self) -> list[Line]:
        """Return all whole lines, in order of time; what is none is passed over.

        Raises:
            UsageError: the file cannot be read.
        """
        try:
            texts = self.file.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UsageError(f"{self.file} cannot be read ({error.strerror}): give another --out") from error
        return sorted(filter(None, map(_line, texts)), key=lambda line: line.when)

    def struck(self) -> set[tuple[int, int]]:
        """(rank, step) of every rank that is known to have failed."""
        return {(line.rank, line.step) for line in self.lines() if line.what == "failure"}

    def starts(self) -> int:
        """How often the training has begun, or gone on."""
        return sum(line.what == "start" for line in self.lines())

    def faults(self) -> list[dict[str, Any]]:
        """The failures as the record tells them, in order of time: the fields of `Fault`."""
        lines = self.lines()
        faults = _retried(lines)
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
                faults.append((failed, Fault(failed.rank, failed.step, failed.kind, detected_s, resumed_s, steps_lost)))
        return [asdict(fault) for _, fault in sorted(faults, key=lambda each: each[0].when)]

    def joined(self) -> list[dict[str, Any]]:
        """Who has come later, and worked, as the record tells it: the fields of `Joined`."""
        lines = self.lines()
        sent_for = {line.rank: line.when for line in lines if line.what == "sent for"}
        found = []
        for entry in (line for line in lines if line.what == "joined"):
            after = [line for line in lines if line.when > entry.when]
            gone = (line for line in after if (line.what, line.rank) == ("departed", entry.rank))
            first = next((line for line in after if line.what == "first step"), None)
            if entry.rank in sent_for and first and all(line.when > first.when for line in gone):
                found.append(asdict(Joined(entry.rank, first.step, first.when - sent_for[entry.rank])))
        return found


def _line(text: str) -> Line | None:
    """The line that `text` is; None: it is empty, torn by the end of its writer, or damaged."""
    try:
        line = Line(**json.loads(text))
    except (ValueError, TypeError, RecursionError):
        return None
    numbers = isinstance(line.when, int | float) and isinstance(line.rank, int) and isinstance(line.step, int)
    return line if numbers and line.what in get_args(What) and isinstance(line.kind, str) else None


def _before_each_start(lines: Sequence[Line]) -> list[tuple[list[Line], Line]]:
    """Each start that may come after failures, and what was written before it, since the one before.

    Who has died before the first start, and was missed then, is why that one came as it did; else it was missed later.
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
    """Whether a start comes after these not because of a failure: a stop was asked for, or somebody joins."""
    kinds = {line.what for line in lines}
    return "stop" in kinds or bool(kinds & {"enlarged", "undone", "joined"} and not kinds & {"noticed", "departed"})


def _retried(lines: Sequence[Line]) -> list[tuple[Line, Fault]]:
    """The failures of one rank's own work that another try has made good."""
    faults = []
    for again in (line for line in lines if line.what == "retried"):
        for failed in [line for line in lines if _is_about(again, line) and line.when <= again.when][-1:]:
            faults.append((failed, Fault(failed.rank, failed.step, failed.kind, 0.0, again.when - failed.when, 0)))
    return faults


def _is_about(again: Line, line: Line) -> bool:
    return (line.what, line.rank, line.step) == ("failure", again.rank, again.step)


def _failed(lines: Sequence[Line]) -> list[Line]:
    """One line for each rank that has failed between two starts, of those written meanwhile."""
    noticed = [line for line in lines if line.what == "noticed"]
    retried = [line for line in lines if line.what == "retried"]
    # What raises after a death has been noticed follows from it.
    own = [
        line
        for line in lines
        if line.what == "failure"
        and not (line.kind == "raise" and noticed and noticed[0].when < line.when)
        and not any(_is_about(again, line) for again in retried)
    ]
    by_rank: dict[int, Line] = {}
    departed = [line for line in lines if line.what == "departed"]
    known = {line.rank for line in departed}  # for certain, while who is noticed may only have been ended with the job
    # Not everybody who notices knows how far the dead one had come; a spare knows of no step.
    reached = {rank: max(line.step for line in [*noticed, *departed] if line.rank == rank) for rank in known}
    missed = [replace(line, step=reached[line.rank]) for line in noticed if line.rank in known]
    for line in [*own, *missed, *departed] or [line for line in noticed if line.rank != UNKNOWN] or noticed:
        by_rank.setdefault(line.rank, line)
    # Nobody may have been left to notice, as when a whole node goes: then only the last sign of life is known.
    last = lines[-1]
    return [*by_rank.values()] or [Line(last.when, "noticed", UNKNOWN, max(line.step for line in lines), "lost")]


@dataclass(frozen=True)
class RankWitness:
    """Writes down what one rank sees of failures; the `Witness` of its `World`."""

    event_log: EventLog
    rank: int

    def strikes(self, fail: Fail) -> None:
        self.event_log.write("failure", fail.rank, fail.step, fail.how)

    def fails(self, step: int) -> None:
        self.event_log.write("failure", self.rank, step, "raise")

    def notices(self, ranks: Sequence[int], step: int) -> None:
        for rank in ranks or [UNKNOWN]:
            self.event_log.write("noticed", rank, step, "lost")
