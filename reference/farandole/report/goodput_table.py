"""The table of ``farandole goodput``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.table import Column, Table
from rich.text import Text

HEADINGS = {
    "goodput": "work",
    "repeated": "again",
    "saves": "saves",
    "pauses": "stopped",
    "missing": "dead",
}


def goodput(workers: int, between_s: float, rows: Sequence[Mapping[str, Any]]) -> Group:
    """Return a table with a row per method: the shares of the workers' time, in percent.

    Args:
        between_s: mean seconds between two failures of all workers together.
        rows: as `farandole.cli.goodput.shares` returns them.
    """
    table = Table(Column("method", no_wrap=True), Column("saved", justify="right", no_wrap=True))
    for heading in HEADINGS.values():
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        every_s = row["save_every_s"]
        shares = (f"{100 * row[name]:.2f}" for name in HEADINGS)
        table.add_row(row["method"], "–" if every_s is None else duration(every_s), *shares)
    return Group(
        Text(f"{workers:,} workers, a failure every {duration(between_s)}; where their time goes, in %"), table
    )


def duration(seconds: float) -> str:
    """Return a time in the unit that suits it."""
    for unit, size in (("d", 86_400.0), ("h", 3_600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
