"""``farandole bench dynamic``: a controller against every fixed choice, where something changes midway.

- network: the links are slow at first, and fast from a quarter of the training on. Ranks have few classes each, so a
  long period costs accuracy.
- straggler: one rank computes four times slower, and from step 200 on another one instead.

Measured is, of all alike, the time until the common parameters have the loss `TARGET` on all training samples, without
the time that measuring the loss takes. A choice that never reaches it has an error instead. Peers are fixed periods:
in one row with the same number of steps on all ranks, in another with steps by the speed measured, as the controller
divides them, so that they follow half of what it follows. All begin with the same parameters.

All ranks sleep after each computation, several times as long as it took: so it is the methods that are compared, and
not how this machine's cores are shared.
"""

from __future__ import annotations

from statistics import median
from typing import Any

from farandole.errors import LaunchError
from farandole.launching import launch
from farandole.runtime import guard
from farandole.runtime.record import Run
from farandole_tools.bench.recovery import state_bytes
from farandole_tools.forked_ranks import fork_server

ROUNDS = 3
PERIODS = (1, 4, 8, 16, 64)
PACE = 6  # the slowness of every rank
TARGET = 0.1
RECIPE: dict[str, Any] = {"data": "digits", "hidden": 32, "batch": 64, "lr": 0.2}
NETWORK: dict[str, Any] = {
    "steps": 1200, "concentration": 0.05, "link_mbps": 4, "link_change": "step=300,mbps=1000",
}  # fmt: skip
STRAGGLER: dict[str, Any] = {"steps": 800}
CHANGE = 200  # the step from which on another rank is the straggler
CONTROLLER = "controller"
TUNING = {"period": "the same period from the first step to the last"}
DIVISIONS: dict[str, dict[str, Any]] = {"equal steps": {"equal_steps": True}, "by speed": {}}

Seconds = list[float | None]  # of each round; None: it did not get there


def rows(ranks: int) -> list[dict[str, Any]]:
    """Two rows for each change: beside fixed periods with equal steps, and beside those with steps by speed."""
    fork_server.start()  # for some seventy launches
    ranks = max(2, ranks)
    return [row for name, task in changes(ranks).items() for row in _rows_of(name, ranks, task)]


def notes(rows: list[dict[str, Any]]) -> list[str]:
    """Return the note below the table: the loss that the times lead to."""
    return [f"to a loss of {TARGET}; an empty field: never"]


def changes(ranks: int) -> dict[str, dict[str, Any]]:
    """Return for each change the options of all its trainings."""
    paces = [f"rank={rank},factor={PACE}" for rank in range(ranks)]
    slower = [
        *paces,
        f"rank={ranks - 1},factor={4 * PACE},until={CHANGE}",
        f"rank=0,factor={4 * PACE},from={CHANGE}",
    ]
    return {"network": RECIPE | NETWORK | {"slow": paces}, "straggler": RECIPE | STRAGGLER | {"slow": slower}}


def choices() -> dict[tuple[str, str], dict[str, Any]]:
    """Return the choices, by how steps are divided and by name → what it adds to the options; the controller first."""
    fixed = {
        (division, f"period {period}"): {"period": period, **options}
        for division, options in DIVISIONS.items()
        for period in PERIODS
    }
    return {("by speed", CONTROLLER): {}, **fixed}


def _rows_of(name: str, ranks: int, task: dict[str, Any]) -> list[dict[str, Any]]:
    seconds: dict[tuple[str, str], Seconds] = {choice: [] for choice in choices()}
    with guard.temporary_folder("farandole-bench-") as folder:
        for number in range(ROUNDS):
            for choice, options in choices().items():
                files = folder / f"{number} {' '.join(choice)}"
                run = launch("dynamic_sync", ranks, **task, **options, out=files)
                seconds[choice].append(time_to(TARGET, run))
    never = f"does not come to a loss of {TARGET} in {task['steps']} steps"
    own = _median(seconds.pop(("by speed", CONTROLLER)))
    if own is None:
        raise LaunchError(f"the controller {never}")
    found: list[dict[str, Any]] = []
    for division in DIVISIONS:
        peers: dict[str, dict[str, Any]] = {}
        for (its_division, peer), theirs in seconds.items():
            if its_division == division:
                its = _median(theirs)
                peers[peer] = {"error": never} if its is None else {"median_s": its, "ratio": its / own}
        found.append({
            "name": f"{name}, {division}", "size": state_bytes(RECIPE, 64) // 2, "ranks": ranks, "median_s": own,
            "peers": peers,
        })  # fmt: skip
    return found


def _median(seconds: Seconds) -> float | None:
    """None: not every time did it come there."""
    there = [each for each in seconds if each is not None]
    return median(there) if len(there) == len(seconds) else None


def time_to(loss: float, run: Run) -> float | None:
    """When the record first has so small a loss, and stays there for the next line too; None: never."""
    lines = run.metrics
    for line, following in zip(lines, [*lines[1:], lines[-1]], strict=True):
        if max(line["loss"], following["loss"]) <= loss:
            return float(line["wall_s"])
    return None
