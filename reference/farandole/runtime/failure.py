"""The failure report of a rank that cannot continue, and the launcher's choice of the first one.

One failing rank makes all the others fail a moment later. Each therefore leaves a small report
with the time of day; the launcher shows the one that explains the rest.
"""

from __future__ import annotations

import errno
import json
import re
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, get_args

from farandole.errors import FlawedRun, PlainError, UsageError
from farandole.runtime.files import DISK_ERRORS
from farandole.runtime.flight_recorder import NO_STEP, read_positions

# In this order a report explains the others: a lost peer or a time-out is what the rest sees.
Kind = Literal["usage", "killed", "signal", "exception", "unable", "interrupted", "flawed", "lost", "timeout"]
KINDS: tuple[Kind, ...] = get_args(Kind)
# What numpy, torch on a processor and torch on a card say of memory that is not there.
_NOT_ALLOCATED = re.compile(
    r"(?:Unable to allocate|tried to allocate) ([0-9.]+ (?:[KMGTPE]iB|bytes)(?: for an array with shape .*)?)", re.I
)
# What torch, numpy, Python, struct and MPI say of sizes beyond all memory.
_TOO_LARGE = re.compile(
    "Storage size calculation overflowed|Overflow when unpacking|array is too big|Maximum allowed dimension exceeded|"
    "too large to convert|too big to convert|cannot fit 'int'|out of bounds for u?int|does not fit in 'int'|"
    "format requires .*<= number|MPI_ERR_COUNT|MPI_ERR_NO_MEM"
)
SHORT = 120  # characters of a library's own words
CAN_GO_ON = 75  # EX_TEMPFAIL of sysexits.h: nothing is wrong, the same command will continue
EXIT_CODE: dict[Kind, int] = dict.fromkeys(KINDS, 1) | {"usage": 2, "signal": 130, "interrupted": CAN_GO_ON}


class PeerLost(RuntimeError):
    """A process of the job has died; seen by a rank that communicates with it.

    Attributes:
        ranks: which, among all ranks, as far as it is known.
    """

    def __init__(self, message: str, ranks: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.ranks = list(ranks)


class Interrupted(PlainError):
    """All ranks have stopped on request, and saved what they need to continue."""


class NoAnswer(RuntimeError):
    """A library that communicates by itself has given up on another rank."""


@dataclass(frozen=True)
class Failure:
    """Rank `rank` failed at `step` (-1: outside the steps) at time of day `when`; `text` says how."""

    rank: int
    step: int
    kind: Kind
    when: float
    text: str

    @property
    def place(self) -> str:
        return f"rank {self.rank}" + (f" at step {self.step}" if self.step != NO_STEP else "")

    def __str__(self) -> str:
        if self.kind in ("usage", "interrupted", "flawed"):
            return self.text
        if self.kind == "exception":
            return f"{self.place} raised {self.text.strip().splitlines()[-1]}\n{self.text.rstrip()}"
        return f"{self.place} {self.text}"

    def leave(self, folder: Path | None) -> None:
        """Write the report where the launcher looks, or, without a launcher, to standard error."""
        if folder is not None:
            # Renamed into place: the launcher acts on the file's presence.
            unfinished = folder / f"{self.rank}.failure"
            unfinished.write_text(json.dumps(asdict(self)), encoding="utf-8")
            unfinished.rename(unfinished.with_suffix(".failure.json"))
            return
        if self.rank and self.kind == "interrupted":
            return  # all ranks have stopped, and rank 0 says so
        if self.rank and self.kind in ("usage", "signal"):
            time.sleep(1)  # every rank has the same to say: let rank 0 say it once, which ends all
        print(f"farandole: {self}", file=sys.stderr, flush=True)


def describe(error: BaseException, rank: int, step: int) -> Failure:
    """Return the report for an exception."""
    if isinstance(error, UsageError):
        return Failure(rank, step, "usage", time.time(), str(error))
    if isinstance(error, Interrupted):
        return Failure(rank, step, "interrupted", time.time(), str(error))
    if isinstance(error, KeyboardInterrupt):
        return Failure(rank, step, "signal", time.time(), "was interrupted (SIGINT)")
    if isinstance(error, FlawedRun):
        return Failure(rank, step, "flawed", time.time(), str(error))
    if isinstance(error, PlainError):  # its message says it all
        return Failure(rank, step, "unable", time.time(), f"cannot go on: {error}")
    if isinstance(error, PeerLost):
        return Failure(rank, step, "lost", time.time(), str(error))
    if isinstance(error, NoAnswer):
        return Failure(rank, step, "timeout", time.time(), str(error))
    if isinstance(error, OSError) and error.errno in DISK_ERRORS:
        where = f"{error.filename}" if error.filename else "a file"
        return Failure(rank, step, "unable", time.time(), f"cannot go on: {where} cannot be written ({error.strerror})")
    if shortage := short_of_memory(error):
        return Failure(rank, step, "unable", time.time(), f"cannot go on: {shortage}")
    text = "".join(traceback.format_exception(type(error), error, _users_part(error.__traceback__)))
    if "MPI_ERR_PROC_FAILED" in str(error):  # a program that uses mpi4py directly, without our communicator
        return Failure(rank, step, "lost", time.time(), f"found that another rank has died\n{text.rstrip()}")
    return Failure(rank, step, "exception", time.time(), text)


def short_of_memory(error: BaseException) -> str | None:
    """Return in a line what could not be allocated, and where; None for an error of another kind."""
    said = " ".join(str(error).split())
    if found := _NOT_ALLOCATED.search(said):
        what = f"no memory for {found[1]}"
    elif isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        what = "no memory is left"
    elif _TOO_LARGE.search(said):
        what = f"a size is too large for any memory ({said[:SHORT]})"
    else:
        return None
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "site-packages" not in frame.filename] or frames
    where = f" in {Path(own[-1].filename).name}, line {own[-1].lineno}" if own else ""
    return f"{what}{where}: give smaller sizes, or more memory"


def _users_part(trace: TracebackType | None) -> TracebackType | None:
    """Return the traceback without the frames that started the user's program."""
    part = trace
    while part and Path(part.tb_frame.f_code.co_filename).name in ("rank.py", "<frozen runpy>"):
        part = part.tb_next
    return part or trace


def first_failure(folder: Path) -> Failure | None:
    """Return the report that explains a failed launch, or None when no rank left one."""
    reports = [Failure(**json.loads(path.read_text(encoding="utf-8"))) for path in folder.glob("*.failure.json")]
    if not reports:
        return None
    first = min(reports, key=lambda report: (KINDS.index(report.kind), report.when))
    if first.kind == "timeout":
        reporting = {report.rank for report in reports}
        silent = [p for p in read_positions(folder) if not p.waiting and p.rank not in reporting]
        if len(silent) == 1:  # all other ranks wait, or have given up: the chain ends at this one
            text = f"has not answered since; {first.place} {first.text}"
            return Failure(silent[0].rank, silent[0].step, "timeout", first.when, text)
    return first
