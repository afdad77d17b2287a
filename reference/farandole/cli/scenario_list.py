"""``farandole list``: what can be run."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from farandole import scenarios


def list_scenarios() -> None:
    """List the scenarios; ``farandole run SCENARIO --help`` shows the options of one."""
    table = Table("scenario", "what it does")
    for name in scenarios.names():
        table.add_row(name, scenarios.title(scenarios.load(name)))
    Console().print(table)
