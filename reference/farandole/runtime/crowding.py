"""Many ranks on few cores: a faster start, and a report on its progress.

Two ranks per core are common here. With many more, a launch takes long until the first step: every rank imports its
program and connects to all others, and each core does this for one rank at a time. So a launch reports how many ranks
have started. Where possible, all ranks of a launch are forked from one process that has imported torch
(`rank_starter`), also where there are cores enough: it takes less time, and half of the work or less.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import IO

import psutil

from farandole.errors import UsageError
from farandole.runtime import placement, processes, rank_starter

SENSIBLE_PER_CORE = 4
LEAST_BYTES = 10_000_000  # that a rank has to itself: Python, numpy and MPI, without torch
SAYS_AFTER_S = 5.0
REFRESH_S = 0.5
CLEAR_LINE = "\r\033[K"


def prepare(ranks: int) -> None:
    """Prepare a launch of `ranks` processes on this host: import torch once for all ranks, if they are several.

    In a Slurm job, or with FARANDOLE_WARM=0 in the environment, each rank imports torch itself (reason: see
    `farandole_tools.forked_ranks.fork_server`).
    """
    if ranks > 1 and not _elsewhere():
        rank_starter.prepare()


def check_memory(ranks: int, model_bytes: int = 0) -> None:
    """Refuse a launch that is certain to need more memory than this host has free.

    Args:
        model_bytes: what all ranks together need for the model, at least.

    Raises:
        UsageError: it does not fit; says how many ranks would.
    """
    if _elsewhere():
        return
    available = psutil.virtual_memory().available
    if model_bytes > available:
        raise UsageError(
            f"the model and its gradient take {_gigabytes(model_bytes)}, and {_gigabytes(available)} of memory are "
            "free: give a smaller --hidden or --depth"
        )
    most = (available - model_bytes) // LEAST_BYTES
    if ranks > most:
        raise UsageError(
            f"{ranks} ranks: they take {_gigabytes(ranks * LEAST_BYTES + model_bytes)} of memory or more, and "
            f"{_gigabytes(available)} are free: give at most {most}"
        )


class StartReport:
    """Reports on `stream` how many ranks have started, if they are many for the cores: one line, live on a terminal.

    Args:
        is_here: whether all ranks are on this host.

    Attributes:
        is_over: whether the ranks have begun their work, or no report is needed.
    """

    def __init__(self, scratch: Path, ranks: int, is_here: bool = True, stream: IO[str] | None = None) -> None:
        self.scratch, self.ranks = scratch, ranks
        self.stream = stream or sys.stderr
        self.cores = processes.available_cores()
        self.is_over = not is_here or ranks <= SENSIBLE_PER_CORE * self.cores
        self._says_at = time.monotonic() + SAYS_AFTER_S
        self._shown = ""
        if not self.is_over:
            self._write(
                f"farandole: {ranks} ranks on {self.cores} core{'s' if self.cores > 1 else ''}: they take long to "
                f"start and share the cores, so their times say little; up to {SENSIBLE_PER_CORE} a core is sensible\n"
            )

    def look(self) -> None:
        """Update the report. Call it repeatedly, each time before the ranks' output is shown."""
        if self.is_over:
            return
        if self._count("position") == self.ranks or self._speaks():
            self.finish()
        elif time.monotonic() >= self._says_at:
            terminal = self.stream.isatty()
            self._says_at = time.monotonic() + REFRESH_S if terminal else float("inf")
            text = f"farandole: {self}"
            if text != self._shown:
                self._write(CLEAR_LINE + text if terminal else text + "\n")
                self._shown = text

    def finish(self) -> None:
        """End the report and clear a live line, since the ranks are at work or have ended."""
        if self._shown and self.stream.isatty():
            self._write(CLEAR_LINE)
        self.is_over, self._shown = True, ""

    def __str__(self) -> str:
        started = self._count("out")
        state = f"{started} have started" if started < self.ranks else "all have started, and connect to each other"
        return f"starting {self.ranks} ranks on {self.cores} core{'s' if self.cores > 1 else ''}: {state}"

    def _count(self, what: str) -> int:
        return sum(1 for _ in self.scratch.glob(f"*.{what}"))

    def _speaks(self) -> bool:
        output = self.scratch / "0.out"
        return output.exists() and output.stat().st_size > 0

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()


def _elsewhere() -> bool:
    """Return whether ranks may start on other hosts."""
    return placement.HOSTS in os.environ or "SLURM_JOB_ID" in os.environ


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:,.1f} GB"
