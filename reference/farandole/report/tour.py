"""The tour: 15 ways to train, side by side, once evenly and once with a slow rank.

The same digits, model, batches and seed for all; what differs is how the ranks agree. The
lines are those of `methods.METHODS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2

from farandole import methods
from farandole.report import curves, table, timeline
from farandole.runtime.record import Run

RANKS = 4
SLOW = "rank=3,factor=3"
# Enough work per step that it, and not the start of a message, sets the pace on a laptop.
RECIPE: dict[str, Any] = {"data": "mnist5k", "batch": 256, "hidden": 256, "lr": 0.5}
CONDITIONS: dict[str, dict[str, Any]] = {"even": {}, "one rank 3× slower": {"slow": SLOW}}


def write_page(
    folder: Path, recipe: Mapping[str, Any], runs: Mapping[str, Mapping[str, Run]], left_out: Mapping[str, str]
) -> Path:
    """Draw the pictures and write index.html beside them; opens from the file system, offline.

    Args:
        left_out: what was not run → the reason.
    """
    sections, columns = [], table.columns([run.summary for by_name in runs.values() for run in by_name.values()])
    for number, (condition, by_name) in enumerate(runs.items()):
        curves_file = curves.draw(by_name, folder / f"curves-{number}.png")
        rows = []
        for name, run in by_name.items():
            picture = timeline.draw(run, run.folder / "timeline.png", title=f"{name}, {condition}")
            cells = [show(run.summary) for show in columns.values()]
            about = next(stop.about for _, stop in methods.stops() if stop.name == name)
            rows.append({"name": name, "about": about, "cells": cells, "timeline": picture.relative_to(folder),
                         "trace": (run.folder / "trace.json").relative_to(folder)})  # fmt: skip
        sections.append({"condition": condition, "curves": curves_file.name, "rows": rows})
    environment = jinja2.Environment(loader=jinja2.PackageLoader("farandole.report", "."), autoescape=True)
    page = environment.get_template("tour.html").render(
        sections=sections, headings=list(columns), left_out=left_out, ranks=RANKS, recipe=recipe
    )
    file = folder / "index.html"
    file.write_text(page, encoding="utf-8")
    return file
