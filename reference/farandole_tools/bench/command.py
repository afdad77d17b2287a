"""``farandole bench [NAME]``: how fast we are beside a named peer."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column, Table

from farandole import own_task
from farandole.cli import pictures
from farandole.errors import UsageError
from farandole.runtime.files import json_text
from farandole.runtime.numbers import AtLeastOne, Positive
from farandole_tools.bench import BENCHMARKS, versions

PICTURED = WITH_PEERS = "allreduce"
WITH_LARGE = ("allreduce", "step", "recovery", "chaos")
OF_A_TASK = OF_FOUR_RANKS = "methods"


def bench(
    name: str | None = None,
    *,
    ranks: Annotated[AtLeastOne, Parameter(alias="-n")] = 4,
    picture: Path | None = None,
    peers: Literal["usual", "all"] = "usual",
    large: Annotated[bool, Parameter(negative="")] = False,
    task: str | None = None,
    lr: Positive = 0.1,
    batch: AtLeastOne = 64,
    steps: AtLeastOne = 160,
    target: Positive | None = None,
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Measure against a peer in the same run; a ratio above 1 means that we are faster.

    Args:
        name: which benchmark. [default: all]
        ranks: number of processes; methods has 4.
        picture: of allreduce: all times over the vector's size, beside the cost model; a .png, .svg or .pdf.
        peers: of allreduce: all adds MPICH, Intel MPI (installed at first use) and each MPI's algorithms. Other
            benchmarks have no further peers, and are measured as usual.
        large: of allreduce: vectors of 256 MiB and 1 GiB; of step: a GPT-2 of 124 million parameters; of recovery: a
            state of 1 GiB; of chaos: ten minutes, with a tenth of the deaths.
        task: of methods: a task of your own, my_task.py or package.module:name, in place of the digits.
        lr: with --task: the learning rate of all methods.
        batch: with --task: samples of a step.
        steps: with --task: after which a method gives up.
        target: with --task: the training loss to reach. [default: half of the first]
        json_: print the rows as a JSON list instead.
    """
    if name is not None and name not in BENCHMARKS:
        raise UsageError(f"there is no benchmark {name!r}: choose from {', '.join(BENCHMARKS)}")
    if picture and name != PICTURED:
        raise UsageError(f"--picture is for {PICTURED}: farandole bench {PICTURED} --picture {picture}")
    if picture:
        pictures.check(picture, "--picture")
    if peers != "usual" and name not in (None, WITH_PEERS):
        raise UsageError(f"--peers is for {WITH_PEERS}: farandole bench {WITH_PEERS} --peers {peers}")
    if large and name not in WITH_LARGE:
        raise UsageError(f"--large is for {', '.join(WITH_LARGE)}: farandole bench {WITH_LARGE[0]} --large")
    if ranks != 4 and name == OF_FOUR_RANKS:
        raise UsageError(f"{OF_FOUR_RANKS} is for 4 ranks, among which it has places for servers: leave out -n {ranks}")
    if task is not None and name != OF_A_TASK:
        raise UsageError(f"--task is for {OF_A_TASK}: farandole bench {OF_A_TASK} --task {task}")
    if task is None and (lr, batch, steps, target) != (0.1, 64, 160, None):
        raise UsageError("--lr, --batch, --steps and --target go with --task: add it, or leave them out")
    own = {"task": own_task.absolute(task), "lr": lr, "batch": batch, "steps": steps} if task else {}
    found: list[dict[str, Any]] = []
    console = Console()
    names = [name] if name else [*BENCHMARKS]
    for done, each in enumerate(names):
        module = importlib.import_module(BENCHMARKS[each])
        more: dict[str, Any] = {"recipe": module.Recipe(own, target)} if task else {}
        more |= {"all_peers": True} if peers == "all" and each == WITH_PEERS else {}
        more |= {"large": True} if large else {}
        with _under_way(each, done, len(names)):
            rows = module.rows(ranks, **more)
        versions.add_to(rows, module.TUNING)
        found += rows
        if not json_:
            console.print(_table(rows))
            for note in module.notes(rows) if hasattr(module, "notes") else []:
                console.print(note)
    if json_:
        print(json_text(found, indent=2))
    if picture:
        from farandole.report import allreduce_picture

        pictures.save(picture, lambda: allreduce_picture.draw(found, picture), "--picture")


@contextmanager
def _under_way(name: str, done: int, of: int) -> Iterator[None]:
    """On a terminal, show which benchmark runs, how many are done, and for how long this one has been running."""
    count = [MofNCompleteColumn()] if of > 1 else []
    columns = (TextColumn("bench {task.description}"), BarColumn(), *count, TimeElapsedColumn())
    errors = Console(stderr=True)
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as shown:
        shown.add_task(name, completed=done, total=of if of > 1 else None)  # of one alone the bar has no end
        yield


def _table(rows: list[dict[str, Any]]) -> Table:
    """Return a row for each of ours, a column for each peer: its time over ours. Of all-reduces two bandwidths too."""
    peers = list(dict.fromkeys(peer for row in rows for peer in row["peers"]))
    bus = ["GB/s", "memory"] if "bus_bytes_per_s" in rows[0] else []
    own = (Column(name, justify="right", no_wrap=True) for name in ("KiB", "ranks", "ms", *bus))
    others = (Column(name, justify="right", overflow="fold") for name in peers)
    table = Table(Column(no_wrap=True), *own, *others, box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for row in rows:
        ratios = {peer: its["ratio"] for peer, its in row["peers"].items() if "ratio" in its}
        beside = (f"{ratios[peer]:.2f}" if peer in ratios else "" for peer in peers)
        size, ours = (
            f"{row['size'] / 1024:,.0f}",
            "never" if row["median_s"] is None else f"{row['median_s'] * 1e3:.3f}",
        )
        carried = [f"{row['bus_bytes_per_s'] / 1e9:.2f}", f"{row['memory_fraction']:.2f}"] if bus else []
        table.add_row(row["name"], size, str(row["ranks"]), ours, *carried, *beside)
    errors = {peer: its["error"] for row in rows for peer, its in row["peers"].items() if "error" in its}
    bandwidths = "GB/s: the bus bandwidth; memory: the part of the time that memory needs; "
    what = (bandwidths if bus else "") + "a peer's column: its time over ours"
    table.caption = escape("\n".join([what, *(f"without {peer}: {error}" for peer, error in errors.items())]))
    return table
