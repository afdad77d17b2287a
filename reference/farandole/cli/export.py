"""``farandole export RUN``: a record in the format of another tool."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from farandole.runtime.record import Run

Format = Literal["chakra"]


def export(run: Path, *, out: Path, format: Format = "chakra") -> None:
    """Write a run's computations and messages as files that a simulator of networks replays.

    Args:
        run: the run's folder, or latest: the run below runs/ that finished last.
        out: a new folder for the files.
        format: chakra, execution traces for ASTRA-sim: a file NAME.RANK.et for each rank. (trace.json of a run's folder
            is for ui.perfetto.dev as it is.)
    """
    from farandole.report import chakra

    record = Run.open(run)
    files = chakra.export(record, out)
    for file in files:
        print(file)
