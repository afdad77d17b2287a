"""The event log of a training, across all its starts: one line per event, written by the live ranks.

A rank that dies writes nothing; the ranks that detect its death write the line. A rank with an injected failure
(`--fail`) writes a line just before. A start that continues from a checkpoint reads the lines of earlier starts: which
failures it follows, how long they took, and how many steps were lost (`failure_log`). Injected failures that have
struck already do not strike again.

Lines are appended whole (O_APPEND), so that ranks may write at the same time, and a torn last line costs only itself.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from farandole.errors import UsageError
from farandole.recovery import failure_log
from farandole.recovery.events import UNKNOWN, Line, What, line_of
from farandole.runtime.faults import Fail


@dataclass(frozen=True)
class EventLog:
    """The lines in `file`, which every rank must reach."""

    file: Path

    def write(self, what: What, rank: int, step: int, kind: str = "", when: float | None = None) -> None:
        """Append a line, which outlives this process."""
        line = Line(time.time() if when is None else when, what, rank, step, kind)
        descriptor = os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            # After a torn line a line break comes first, so that this line is whole nevertheless.
            size = os.fstat(descriptor).st_size
            torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
            os.write(descriptor, ("\n" * torn + json.dumps(asdict(line)) + "\n").encode())
        except OSError as error:
            error.filename = str(self.file)
            raise
        finally:
            os.close(descriptor)

    def lines(self) -> list[Line]:
        """Return all whole lines, in order of time; others are skipped.

        Raises:
            UsageError: the file cannot be read.
        """
        try:
            texts = self.file.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UsageError(f"{self.file} cannot be read ({error.strerror}): give another --out") from error
        return sorted(filter(None, map(line_of, texts)), key=lambda line: line.when)

    def struck(self) -> set[tuple[int, int]]:
        """Return (rank, step) of every rank that is known to have failed."""
        return {(line.rank, line.step) for line in self.lines() if line.what == "failure"}

    def starts(self) -> int:
        """Return how often the training has begun, or continued."""
        return sum(line.what == "start" for line in self.lines())

    def faults(self) -> list[dict[str, Any]]:
        """Return the failures as the record tells them, in order of time: the fields of `failure_log.Fault`."""
        return failure_log.faults(self.lines())

    def joined(self) -> list[dict[str, Any]]:
        """Return the processes that have joined, as the record tells them: the fields of `failure_log.Joined`."""
        return failure_log.joined(self.lines())


@dataclass(frozen=True)
class RankWitness:
    """Writes to the event log what one rank detects of failures; the `Witness` of its `World`."""

    event_log: EventLog
    rank: int

    def strikes(self, fail: Fail) -> None:
        self.event_log.write("failure", fail.rank, fail.step, fail.how)

    def recovers(self, fail: Fail) -> None:
        self.event_log.write("retried", fail.rank, fail.step)

    def fails(self, step: int) -> None:
        self.event_log.write("failure", self.rank, step, "raise")

    def notices(self, ranks: Sequence[int], step: int) -> None:
        for rank in ranks or [UNKNOWN]:
            self.event_log.write("noticed", rank, step, "lost")
