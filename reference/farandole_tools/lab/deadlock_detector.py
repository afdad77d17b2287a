"""A thread that ends a rank's launch when it deadlocks or does not come to an end.

Ranks are deadlocked when for some time no rank computes and no rank's status changes. That time is counted in looks at
the status files, not in seconds: on a machine so busy that messages take long, this thread looks less often too.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from farandole_tools.lab import rank_status

POLL_S = 0.1
LOOKS = 8  # equal looks in a row after which no rank makes progress any more
PATIENCE_S = 1.0  # a rank that waits lets one that computes report first
MORE_TIME = " (is the machine slow? Check again with --time-limit 30)"


class DeadlockDetector(threading.Thread):
    """Calls `stop(reason)` once the ranks are deadlocked, or a phase lasts longer than its limit.

    Args:
        folder: where the status files of all `size` ranks are; this process is rank `rank`.
        stop: ends the process; does not return.
        launcher: a process id; without that process this one ends too.
        current_line: says at which line of the learner's file this process is, for the message of a time-out.
        looks: equal looks after which no rank makes progress; more where messages may be huge.
        verdict: once this file is there, another rank has ended the launch, and this one ends too.
    """

    def __init__(
        self,
        folder: Path,
        rank: int,
        size: int,
        stop: Callable[[str], None],
        *,
        launcher: int | None = None,
        current_line: Callable[[], str] = lambda: "",
        verdict: Path | None = None,
        looks: int = LOOKS,
    ) -> None:
        super().__init__(name="deadlock detector", daemon=True)
        self.folder, self.rank, self.size = folder, rank, size
        self.stop, self.launcher, self.current_line, self.verdict = stop, launcher, current_line, verdict
        self.looks = looks
        self._limit_s = self._ends = math.inf

    def begin(self, limit_s: float) -> None:
        """A phase begins, of at most `limit_s` seconds."""
        self._limit_s, self._ends = limit_s, time.monotonic() + limit_s

    def run(self) -> None:
        before: list[rank_status.RankStatus] = []
        looks = 0
        while True:
            time.sleep(POLL_S)
            if self.launcher is not None and not psutil.pid_exists(self.launcher):
                os._exit(1)
            if self.verdict is not None and self.verdict.exists():
                os._exit(0)
            now = rank_status.read(self.folder, self.size)
            looks = looks + 1 if now == before else 0
            # All detectors see the same; one of them speaks.
            if looks >= self.looks and rank_status.first_stuck(now, self.size) == self.rank:
                self.stop(f"deadlock: {rank_status.describe(now)}")
            over = time.monotonic() - self._ends
            busy = not looks or any(status.rank == self.rank and not status.call for status in now)
            if over > PATIENCE_S or (over > 0 and busy):
                self.stop(self._too_long(now, busy))
            before = now

    def _too_long(self, now: list[rank_status.RankStatus], busy: bool) -> str:
        if not busy:
            return f"no end after {self._limit_s:g} s: {rank_status.describe(now)}{MORE_TIME}"
        who = f"rank {self.rank} is " if self.size > 1 else ""
        return f"{who}still running after {self._limit_s:g} s{self.current_line()}{MORE_TIME}"
