"""``farandole bench methods``: 43 ways to train the same model, on one axis, under three conditions.

- fast: as this machine is; messages go through memory.
- 100 Mbit/s: each rank has a link of that speed. What sends no messages of ours is left out.
- straggler: the last rank computes ten times more slowly.

Measured is the time until the training loss is `TARGET`, so that both count, the steps that it takes and the time of
one. The peer is synchronous SGD over a ring: a ratio above 1 means that the method is there sooner. All train the same
model from the same seed, with the same batches of all workers together; a method with a server has one worker less. The
learning rate is the same for all but Downpour, whose Adagrad has a scale of its own.

With ``--task`` they train a task of the user's own, by those methods that can; the loss to reach is then half of the
first one, unless it is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from farandole.errors import LaunchError, UsageError
from farandole.launching import launch
from farandole.methods import METHODS
from farandole.runtime import guard
from farandole_tools.bench.dynamic import time_to

ROUNDS = 3
TARGET = 0.5
PEER = "ring"
TUNING = {PEER: "synchronous SGD with the options of all methods"}
RECIPE: dict[str, Any] = {"data": "mnist5k", "hidden": 64, "batch": 256, "lr": 0.2, "steps": 160}
CONDITIONS = ("fast", "100 Mbit/s", "straggler")


@dataclass(frozen=True)
class Recipe:
    """The training, and the loss at which it ends.

    Attributes:
        options: of every method.
        target: the training loss; None: half of the first.
    """

    options: Mapping[str, Any]
    target: float | None


@dataclass(frozen=True)
class Method:
    """A scenario with options; `room` is where to read it."""

    name: str
    scenario: str
    room: str
    options: Mapping[str, Any]


def measured() -> list[Method]:
    """Return the lines of `METHODS`, synchronous SGD over a ring first."""
    return [
        Method(each.name, scenario, row.room, each.options)
        for scenario, row in METHODS.items()
        for each in row.measured
    ]


def conditions(ranks: int) -> dict[str, dict[str, Any]]:
    """Return what each condition adds to the options."""
    disturbances: tuple[dict[str, Any], ...] = ({}, {"link_mbps": 100}, {"slow": f"rank={ranks - 1},factor=10"})
    return dict(zip(CONDITIONS, disturbances, strict=True))


def rows(ranks: int, recipe: Recipe | None = None) -> list[dict[str, Any]]:
    """A row for each condition and method that runs under it; `median_s` is None where the loss is never reached.

    Args:
        recipe: of a task of the user's own; None: the usual one.

    Raises:
        UsageError: the recipe does not fit.
        LaunchError: synchronous SGD does not come to the loss.
    """
    ranks = 4  # which the places of servers and workers are for
    recipe = recipe or Recipe(RECIPE, TARGET)
    if recipe.target is None:
        with guard.temporary_folder("farandole-bench-") as folder:
            run = launch("sync_sgd", ranks, **recipe.options, out=folder / "first")
            recipe = Recipe(recipe.options, run.metrics[0]["loss"] / 2)
    return [row for name, more in conditions(ranks).items() for row in _under(name, more, ranks, recipe)]


def notes(rows: list[dict[str, Any]]) -> list[str]:
    """Name the methods that never reach the loss, and why others do not train a task of the user's own."""
    never = [row["name"] for row in rows if row["median_s"] is None]
    return [
        f"to a loss of {rows[0]['target']:.3g}",
        *([f"not there after {rows[0]['steps']} steps: {'; '.join(never)}"] if never else []),
        *(f"{name} is left out: {reason}" for name, reason in rows[0].get("left_out", {}).items()),
    ]


def _under(condition: str, disturbance: dict[str, Any], ranks: int, recipe: Recipe) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    left_out: dict[str, str] = {}
    for method in measured():
        try:
            seconds, last = _measured(method, disturbance, ranks, recipe)
        except UsageError as error:
            if method.name == PEER:
                raise
            left_out[method.name] = str(error)
            continue  # messages that are not ours have no slow link; some methods train no task of the user's own
        there = [each for each in seconds if each is not None]
        own = median(there) if len(there) == len(seconds) else None
        found.append({
            "name": f"{condition}: {method.name}", "size": last["bytes"], "ranks": ranks, "median_s": own,
            "wall_s": last["wall_s"], "test_accuracy": last["test_accuracy"], "peers": {},
            "target": recipe.target, "steps": recipe.options["steps"],
        })  # fmt: skip
    if "task" in recipe.options:
        found[0]["left_out"] = left_out
    [peer_s] = [row["median_s"] for row in found if row["name"] == f"{condition}: {PEER}"]
    if peer_s is None:
        raise LaunchError(
            f"synchronous SGD does not come to a loss of {recipe.target:.3g} in {recipe.options['steps']} steps"
        )
    for row in found:
        if row["median_s"] is not None:
            row["peers"] = {PEER: {"median_s": peer_s, "ratio": peer_s / row["median_s"]}}
    return found


def _measured(
    method: Method, disturbance: dict[str, Any], ranks: int, recipe: Recipe
) -> tuple[list[float | None], dict[str, Any]]:
    """Return each round's seconds to the loss, and figures of the last one; `bytes` are of the rank that sent most."""
    seconds: list[float | None] = []
    assert recipe.target is not None
    with guard.temporary_folder("farandole-bench-") as folder:
        for number in range(ROUNDS):
            options = {**recipe.options, **method.options, **disturbance}
            run = launch(method.scenario, ranks, **options, out=folder / str(number))
            seconds.append(time_to(recipe.target, run))
        summary = run.summary
    last = {"wall_s": summary.wall_s, "test_accuracy": summary.test_accuracy, "bytes": max(summary.bytes_sent or [0])}
    return seconds, last
