"""``farandole tour``: 15 ways to train, side by side, on real digits."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from farandole.errors import UsageError
from farandole.report import table
from farandole.runtime import folders, rank_starter
from farandole.runtime.numbers import AtLeastOne

FOLDER = Path("runs/tour")


def tour(*, out: Path = FOLDER, steps: AtLeastOne = 300) -> None:
    """Train in 15 ways, once evenly and once with a slow rank, and compare.

    Usually takes about 4 minutes on 2 cores.

    Args:
        out: folder for the records and the page; a tour that is there already is replaced.
        steps: of each training; with fewer the tour is over sooner.
    """
    from farandole.report import tour as stops

    recipe = stops.RECIPE | {"steps": steps}
    start = time.monotonic()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out {out} cannot be written ({error.strerror}): give another") from error
    with folders.held(out):
        _make_way(out)
        rank_starter.prepare()
        runs, left_out = stops.run_all(out, recipe, lambda what: print(f"tour: {what} …", flush=True))
        page = stops.write_page(out, recipe, runs, left_out)
    tables = [
        table.comparison({name: run.summary for name, run in by_name.items()}, condition)
        for condition, by_name in runs.items()
    ]
    table.show(tables)
    for stop in left_out:
        print(f"{stop.name} is left out: {stop.needs} is not installed (farandole doctor says how)")
    print(f"{time.monotonic() - start:.0f} s; the pictures: {page}")


def _make_way(out: Path) -> None:
    """Remove a former tour from the folder; refuse a folder with other contents."""
    if any(out.iterdir()) and not (out / ".tour").exists():
        raise UsageError(f"--out {out} holds something other than a tour: give a new folder")
    for entry in out.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    (out / ".tour").touch()
