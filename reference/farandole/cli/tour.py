"""``farandole tour``: 15 ways to train, side by side, on real digits."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from farandole import methods
from farandole.errors import UsageError
from farandole.launching import launch
from farandole.report import table
from farandole.runtime import folders, rank_starter
from farandole.runtime.numbers import whole
from farandole.runtime.record import Run

if TYPE_CHECKING:
    from farandole.methods import Stop

FOLDER = Path("runs/tour")
LEAST_STEPS = 21  # a rank is killed at step 20


def tour(*, out: Path = FOLDER, steps: Annotated[int, whole(gte=LEAST_STEPS)] = 300) -> None:
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
        rank_starter.prepare("torch._dynamo")  # torch's optimizers import it, for Horovod and DDP: seconds on each rank
        runs, left_out = _run_all(out, recipe, lambda what: print(f"tour: {what} …", flush=True))
        page = stops.write_page(out, recipe, runs, left_out)
    tables = [
        table.comparison({name: run.summary for name, run in by_name.items()}, condition)
        for condition, by_name in runs.items()
    ]
    table.show(tables)
    for stop in left_out:
        print(f"{stop.name} is left out: {stop.needs} is not installed (farandole doctor says how)")
    print(f"{time.monotonic() - start:.0f} s; the pictures: {page}")


def _run_all(
    folder: Path, recipe: Mapping[str, Any], announce: Callable[[str], None]
) -> tuple[dict[str, dict[str, Run]], list[Stop]]:
    """Run every strategy under every condition; returns the runs, and the rows left out."""
    from farandole.report import tour as stops

    left_out = [stop for _, stop in methods.stops() if stop.needs and find_spec(stop.needs) is None]
    runs: dict[str, dict[str, Run]] = {}
    for condition, disturbance in stops.CONDITIONS.items():
        runs[condition] = {}
        for scenario, stop in methods.stops():
            if stop in left_out:
                continue
            announce(f"{stop.name}, {condition}")
            out = folder / f"{stop.name} {condition}".replace(" ", "-").replace("×", "x").lower()
            options = {**recipe, **stop.options, **disturbance, "out": out}
            runs[condition][stop.name] = launch(scenario, stops.RANKS, timeout_s=120, **options)
    return runs, left_out


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
