"""The tour: 15 ways to train, side by side, once evenly and once with a slow rank.

The same digits, model, batches and seed for all; what differs is how the ranks agree. `STRATEGIES`
is the list to add a row to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jinja2

from farandole.report import curves, table, timeline
from farandole.runtime.launcher import launch
from farandole.runtime.record import Run

RANKS = 4
SLOW = "rank=3,factor=3"
# Enough work per step that it, and not the start of a message, sets the pace on a laptop.
RECIPE: dict[str, Any] = {"data": "mnist5k", "batch": 256, "hidden": 256, "lr": 0.5}


# Rank 0 is manager and server at once: three workers remain of the four ranks.
SERVED: dict[str, Any] = {"place": "servers=0,workers=1-3"}
KILLED: dict[str, Any] = {"optimizer": "sgd", "dropout": 0.0, "fail": "rank=2,step=60"}


@dataclass(frozen=True)
class Stop:
    """One row of the tour: a scenario with options, and a sentence on what it is."""

    name: str
    scenario: str
    about: str
    options: Mapping[str, Any] = field(default_factory=dict)
    needs: str = ""  # a package without which the row is left out


STRATEGIES = (
    Stop("ring all-reduce", "sync_sgd", "our own ring: each rank talks to its neighbours only"),
    Stop("central aggregator", "sync_sgd", "all gradients through rank 0", {"collective": "central"}),
    Stop("ring, overlapped", "sync_sgd", "the ring, while backward goes on", {"overlap": True, "bucket_kb": 256}),
    Stop("shared memory", "sync_sgd", "gradients lie where all ranks can add them up", {"collective": "window"}),
    Stop("local SGD", "local_sgd", "8 steps apart, then the mean of the parameters", {"period": 8}),
    Stop("top-k, 1 %", "compressed_sgd", "the largest hundredth of each gradient; the rest is kept for later"),
    Stop("gossip on a ring", "gossip_sgd", "each rank averages with its two neighbours; there is no sum of all"),
    Stop("MPI all-reduce", "sync_sgd", "the MPI library's own all-reduce", {"collective": "mpi"}),
    Stop("Horovod", "horovod_sgd", "Horovod's DistributedOptimizer over MPI", needs="horovod"),
    Stop("torch DDP", "ddp_sgd", "torch's DistributedDataParallel over gloo"),
    Stop("server, stale", "parameter_server", "a parameter server; workers may be 4 iterations apart", SERVED),
    Stop("server, async", "parameter_server", "a parameter server; nobody waits", SERVED | {"sync": "async"}),
    Stop("pipeline, 1F1B", "pipeline", "the model in four stages, each batch in 8 parts", {"micro_batches": 8}),
    Stop("a rank killed", "membership", "rank 2 is killed at step 60; the others agree on that, and go on", KILLED),
    Stop("two pipelines", "hybrid", "data parallel over two pipelines of two stages", {"pipeline_ranks": 2}),
)
CONDITIONS: dict[str, dict[str, Any]] = {"even": {}, "one rank 3× slower": {"slow": SLOW}}


def run_all(
    folder: Path, recipe: Mapping[str, Any], announce: Callable[[str], None]
) -> tuple[dict[str, dict[str, Run]], list[Stop]]:
    """Run every strategy under every condition; returns the runs, and the rows left out."""
    left_out = [stop for stop in STRATEGIES if stop.needs and find_spec(stop.needs) is None]
    runs: dict[str, dict[str, Run]] = {}
    for condition, disturbance in CONDITIONS.items():
        runs[condition] = {}
        for stop in STRATEGIES:
            if stop in left_out:
                continue
            announce(f"{stop.name}, {condition}")
            out = folder / f"{stop.name} {condition}".replace(" ", "-").replace("×", "x").lower()
            options = {**recipe, **stop.options, **disturbance, "out": out}
            runs[condition][stop.name] = launch(stop.scenario, RANKS, timeout_s=120, **options)
    return runs, left_out


def write_page(
    folder: Path, recipe: Mapping[str, Any], runs: Mapping[str, Mapping[str, Run]], left_out: list[Stop]
) -> Path:
    """Draw the pictures and write index.html beside them; opens from the file system, offline."""
    sections = []
    for number, (condition, by_name) in enumerate(runs.items()):
        curves_file = curves.draw(by_name, folder / f"curves-{number}.png")
        rows = []
        for name, run in by_name.items():
            picture = timeline.draw(run, run.folder / "timeline.png", title=f"{name}, {condition}")
            cells = [show(run.summary) for show in table.COLUMNS.values()]
            about = next(stop.about for stop in STRATEGIES if stop.name == name)
            rows.append({"name": name, "about": about, "cells": cells, "timeline": picture.relative_to(folder),
                         "trace": (run.folder / "trace.json").relative_to(folder)})  # fmt: skip
        sections.append({"condition": condition, "curves": curves_file.name, "rows": rows})
    environment = jinja2.Environment(loader=jinja2.PackageLoader("farandole.report", "."), autoescape=True)
    page = environment.get_template("tour.html").render(
        sections=sections, headings=list(table.COLUMNS), left_out=left_out, ranks=RANKS, recipe=recipe
    )
    file = folder / "index.html"
    file.write_text(page, encoding="utf-8")
    return file
