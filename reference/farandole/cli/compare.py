"""``farandole compare A B …``: records side by side."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from farandole.errors import UsageError
from farandole.report import table
from farandole.runtime.record import Run


def compare(*folders: Path, json_: Annotated[bool, Parameter(name="--json", negative="")] = False) -> None:
    """Show the records of two or more runs in one table.

    Args:
        folders: the runs' folders.
        json_: print the summaries as a JSON list instead.
    """
    if not folders:
        raise UsageError("compare needs the folders of the runs: farandole compare runs/A runs/B")
    runs = {folder.name: Run.open(folder) for folder in folders}
    if json_:
        print(json.dumps([{"run": name} | asdict(run.summary) for name, run in runs.items()], indent=2))
    else:
        table.show([table.comparison({name: run.summary for name, run in runs.items()})])
