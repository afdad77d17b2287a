"""``farandole doctor``: what works here, what does not, how to mend it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from farandole.runtime.files import json_text
from farandole_tools.doctor.checks import examine


def doctor(*, json_: Annotated[bool, Parameter(name="--json", negative="")] = False) -> None:
    """Show what works on this machine, and the line that mends what does not.

    Args:
        json_: print the findings as a JSON list instead.
    """
    findings = examine()
    if json_:
        print(json_text([asdict(finding) for finding in findings], indent=2))
        return
    table = Table("", "", Column("found", overflow="fold"), Column("remedy", overflow="fold"))
    for finding in findings:
        state = "[green]works[/]" if finding.works else "[yellow]missing[/]"
        table.add_row(finding.name, state, escape(finding.seen), "" if finding.works else escape(finding.mend))
    Console().print(table)
