"""The tour: 15 ways to train, side by side, once evenly and once with a slow rank.

The same digits, model, batches and seed for all; what differs is how the ranks agree. The
lines are those of `methods.METHODS`.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2

from farandole import methods
from farandole.methods import METHODS, Stop
from farandole.report import curves, table, timeline
from farandole.report.colours import MANY
from farandole.report.tour_findings import findings
from farandole.runtime.record import Run

RANKS = 4
SLOW = "rank=3,factor=3"
# Enough work per step that it, and not the start of a message, sets the pace on a laptop.
RECIPE: dict[str, Any] = {"data": "mnist5k", "batch": 256, "hidden": 256, "lr": 0.5}
CONDITIONS: dict[str, dict[str, Any]] = {"even": {}, "one rank 3× slower": {"slow": SLOW}}
TIMELINE_IN = 5.6  # inches: two timelines stand side by side


def write_page(
    folder: Path,
    recipe: Mapping[str, Any],
    runs: Mapping[str, Mapping[str, Run]],
    left_out: Mapping[str, str],
    material: Callable[[str], Path],
) -> Path:
    """Draw the pictures and write index.html beside them; opens from the file system, offline.

    Args:
        runs: condition → method → its run; the first condition is the one without a slow rank.
        left_out: what was not run → the reason.
        material: returns the folder of the "notebooks" or of the "labs".
    """
    colour = dict(zip((stop.name for _, stop in methods.stops()), cycle(MANY), strict=False))
    columns = table.columns([run.summary for by_name in runs.values() for run in by_name.values()])
    tables = {
        condition: {name: [show(run.summary) for show in columns.values()] for name, run in by_name.items()}
        for condition, by_name in runs.items()
    }
    lines = {
        condition: {name: curves.Curve.of(run) for name, run in by_name.items()} for condition, by_name in runs.items()
    }
    shown = []
    for number, (title, stops) in enumerate(groups(runs).items()):
        pictures = {}
        for place, (condition, by_name) in enumerate(lines.items()):
            coloured = {stop.name: colour[stop.name] for stop in stops if stop.name in by_name}
            file = curves.draw_beside(by_name, coloured, folder / f"curves-{number}-{place}.png")
            pictures[condition] = file.name
        cards = [_card(folder, stop, runs, material) for stop in stops]
        shown.append({"id": f"group-{number}", "title": title, "curves": pictures, "cards": cards})
    summaries = [{name: run.summary for name, run in by_name.items()} for by_name in runs.values()]
    environment = jinja2.Environment(loader=jinja2.PackageLoader("farandole.report", "."), autoescape=True)
    page = environment.get_template("tour.html").render(
        tables=tables, groups=shown, headings=list(columns), left_out=left_out, ranks=RANKS, recipe=recipe,
        colour=colour, findings=findings(*summaries[:2]),
    )  # fmt: skip
    file = folder / "index.html"
    file.write_text(page, encoding="utf-8")
    return file


def groups(runs: Mapping[str, Mapping[str, Run]]) -> dict[str, list[Stop]]:
    """Return the groups of the page: title → the stops that were run, each once."""
    found: dict[str, list[Stop]] = {}
    for scenario, stop in methods.stops():
        if any(stop.name in by_name for by_name in runs.values()):
            title = stop.group or METHODS[scenario].room.replace("_", " ").capitalize()
            found.setdefault(title, []).append(stop)
    return found


def _card(
    folder: Path, stop: Stop, runs: Mapping[str, Mapping[str, Run]], material: Callable[[str], Path]
) -> dict[str, Any]:
    """Return what the page says of one stop: what it is, where to learn it, its timelines."""
    mine = {condition: by_name[stop.name] for condition, by_name in runs.items() if stop.name in by_name}
    return {
        "name": stop.name,
        "about": stop.about,
        "timelines": [_timeline(folder, condition, run) for condition, run in mine.items()],
        "notebook": _link(folder, material("notebooks"), stop.notebook, f"{stop.notebook}.ipynb"),
        "lab": _link(folder, material("labs"), stop.lab, f"{stop.lab}/README.md"),
        "start": f"farandole lab start {stop.lab.partition('_')[0].lstrip('0')}",
    }


def _timeline(folder: Path, condition: str, run: Run) -> dict[str, str]:
    """Draw the timeline of a run; returns what the page shows of it."""
    picture = timeline.draw(run, run.folder / "timeline.png", title=condition, width=TIMELINE_IN)
    files = {"timeline": picture, "trace": run.folder / "trace.json"}
    viewer = f"farandole show --trace {shlex.quote(str(run.folder))}"
    return {"condition": condition, "viewer": viewer} | {
        kind: quote(str(file.relative_to(folder))) for kind, file in files.items()
    }


def _link(folder: Path, home: Path, name: str, file: str) -> dict[str, str] | None:
    """Return the name and the address of a notebook or lab: of its page in the documentation, if that is built.

    Args:
        home: the folder of all notebooks or labs.
        file: what to open where there is no such page.
    """
    places = (home.parent / "docs" / "_build" / "html" / home.name / f"{name}.html", home / file)
    found = next((each for each in places if name and each.is_file()), None)
    return {"name": name, "href": quote(os.path.relpath(found.resolve(), folder.resolve()))} if found else None
