"""``farandole tour``: 15 ways to train, side by side, on real digits."""

from __future__ import annotations

import importlib
import itertools
import shutil
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from farandole import methods, own_task
from farandole.errors import UsageError
from farandole.launching import launch
from farandole.report import table
from farandole.runtime import folders, rank_starter
from farandole.runtime.numbers import AtLeastOne, Positive, whole
from farandole.runtime.record import Run

FOLDER = Path("runs/tour")
OWN_BATCH, OWN_LR = 64, 0.1  # of a task that is not ours
LEAST_STEPS = 21  # a rank is killed at step 20


def tour(
    *,
    out: Path = FOLDER,
    steps: Annotated[int, whole(gte=LEAST_STEPS)] = 300,
    task: str | None = None,
    batch: AtLeastOne = OWN_BATCH,
    lr: Positive = OWN_LR,
) -> None:
    """Train in 15 ways, once evenly and once with a slow rank, and compare.

    Usually takes about 4 minutes on 2 cores.

    Args:
        out: folder for the records and the page; a tour that is there already is replaced.
        steps: of each training; with fewer the tour is over sooner.
        task: your own model and data in place of the digits, as my_task.py (docs/own_work.md); what cannot train it is
            left out, with the reason.
        batch: samples of a step, with --task.
        lr: learning rate, with --task.
    """
    from farandole.report import tour as stops

    if task is None and (batch, lr) != (OWN_BATCH, OWN_LR):
        raise UsageError("--batch and --lr are for a task of your own: give --task too, or leave them out")
    own = {"task": own_task.absolute(task), "batch": batch, "lr": lr} if task is not None else None
    recipe = (own or stops.RECIPE) | {"steps": steps}
    start = time.monotonic()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out {out} cannot be written ({error.strerror}): give another") from error
    with folders.held(out):
        _make_way(out)
        rank_starter.prepare("torch._dynamo")  # torch's optimizers import it, for Horovod and DDP: seconds on each rank
        runs, left_out = _run_all(out, recipe, lambda what: print(f"tour: {what} …", flush=True))
        material = importlib.import_module("farandole_tools.material")  # by name, as all commands of the tools
        page = stops.write_page(out, recipe, runs, left_out, material.folder)
    tables = [
        table.comparison({name: run.summary for name, run in by_name.items()}, condition)
        for condition, by_name in runs.items()
    ]
    table.show(tables)
    for name, reason in left_out.items():
        print(f"{name} is left out: {reason}")
    print(f"{time.monotonic() - start:.0f} s; the pictures: {page}")


def _run_all(
    folder: Path, recipe: Mapping[str, Any], announce: Callable[[str], None]
) -> tuple[dict[str, dict[str, Run]], dict[str, str]]:
    """Run every strategy under every condition; returns the runs, and for each one left out the reason."""
    from farandole.report import tour as stops

    left_out = {
        stop.name: f"{stop.needs} is not installed (farandole doctor says how)"
        for _, stop in methods.stops()
        if stop.needs and find_spec(stop.needs) is None
    }
    runs: dict[str, dict[str, Run]] = {}
    count = len(stops.CONDITIONS) * sum(stop.name not in left_out for _, stop in methods.stops())
    numbers = itertools.count(1)
    for condition, disturbance in stops.CONDITIONS.items():
        runs[condition] = {}
        for scenario, stop in methods.stops():
            if stop.name in left_out:
                continue
            announce(f"{stop.name}, {condition} ({next(numbers)} of {count})")
            out = folder / f"{stop.name} {condition}".replace(" ", "-").replace("×", "x").lower()
            options = {**recipe, **stop.options, **disturbance, "out": out}
            try:
                runs[condition][stop.name] = launch(scenario, stops.RANKS, timeout_s=120, **options)
            except UsageError as error:
                if "task" not in recipe or not runs[condition]:  # the first trains whatever can be trained
                    raise
                left_out[stop.name] = str(error)
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
