"""The parts that a method can be run with, as a table on its page: collectives, compressors, policies, schedules.

The names come from the one table of each kind, the sentences from the docstrings, the figures from the schedules.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from farandole.cli.draw import cost
from farandole.collectives.schedules import COLLECTIVES
from farandole.compression.table import COMPRESSORS
from farandole.model_parallel import schedules
from farandole.model_parallel.checker import check
from farandole.parameter_server.core.policies import POLICIES
from farandole.recovery.election import ELECTIONS, about

PACKAGE = Path(__file__).parents[2] / "reference"
FORM, RANKS, MICRO_BATCHES = 2, 4, 8


def first_line(module: str) -> str:
    """Return the first line of a module's docstring, without importing it: some need torch."""
    if module in sys.modules:
        return (sys.modules[module].__doc__ or "").partition("\n")[0]
    path = (PACKAGE / module.replace(".", "/")).with_suffix(".py")
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0]


def collectives() -> Iterator[tuple[str, ...]]:
    for name, row in COLLECTIVES.items():
        if row.is_all_reduce:
            schedule = row.schedule or (row.form and row.form(FORM))
            yield f"`{name}`", row.about, cost(schedule, RANKS) if schedule else "–"


def pipelines() -> Iterator[tuple[str, ...]]:
    for name in schedules.NAMES:
        schedule = schedules.choose(name)
        execution = check(schedule, RANKS, MICRO_BATCHES)
        held = max(execution.stash) / schedule.placement.passes
        module = schedule.computations.__module__
        yield f"`{name}`", first_line(module), f"{execution.bubble_of_total:.1%}", f"{held:.3g}"


def policies() -> Iterator[tuple[str, ...]]:
    for name, row in POLICIES.items():
        yield f"`{name}`", first_line(row.kind.__module__)


def compressors() -> Iterator[tuple[str, ...]]:
    for name, row in COMPRESSORS.items():
        if name != "none":
            yield f"`{name}`", first_line(row.make.partition(":")[0])


def elections() -> Iterator[tuple[str, ...]]:
    for name in ELECTIONS:
        yield f"`{name}`", about(name)


PARTS: dict[str, tuple[str, str, tuple[str, ...], Callable[[], Iterator[tuple[str, ...]]]]] = {
    "sync_sgd": (
        "Collectives",
        f"`--collective` chooses the all-reduce. The cost is of {RANKS} ranks and n bytes, counted from the schedule, "
        f"with forms of {FORM} segments or {FORM} ranks per node; `farandole draw NAME -n 8` draws one.",
        ("name", "what it does", "seconds"),
        collectives,
    ),
    "compressed_sgd": ("Compressors", "`--compressor` chooses one.", ("name", "what it does"), compressors),
    "parameter_server": ("Policies", "`--sync` chooses one.", ("name", "what it does"), policies),
    "pipeline": (
        "Schedules",
        f"`--schedule` chooses one. The figures are counted from the schedules of {RANKS} stages and {MICRO_BATCHES} "
        "micro-batches; `farandole draw NAME --stages 4 --micro-batches 8` draws one.",
        ("name", "what it does", "bubble, of the whole time", "micro-batches held, at most"),
        pipelines,
    ),
    "membership": ("Elections", "How the remaining ranks elect a coordinator.", ("name", "what it does"), elections),
}


def table(name: str) -> Iterator[str]:
    """Yield the lines of the table of a method's parts; none if it has none."""
    if name in PARTS:
        title, sentence, headings, rows = PARTS[name]
        yield f"## {title}\n\n{sentence}\n"
        yield "\n".join(f"| {' | '.join(row)} |" for row in (headings, ["---"] * len(headings), *rows())) + "\n"
