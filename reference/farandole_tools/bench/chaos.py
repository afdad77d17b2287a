"""``farandole bench chaos``: what random deaths leave of a training's throughput.

A training runs for 45 seconds while its ranks die at random moments (``--chaos``), and before and after it for half as
long without a death. The ratio of the samples per second is the share that is kept:

- membership, backup, and DiLoCo with rounds of 25 steps: a new process takes each dead rank's slot, while the others
  continue (``--spawn``);
- membership with spares: one of six processes that wait takes it (``--spares``);
- parameter server: each part of the parameters has two servers, and a worker that has died is not replaced. The
  workers left have more of the cores.

Ranks die ten times as often as at the rate that the notes under the table name, one failure of a rank in a quarter
of an hour (32 ranks with 62 failures in half an hour, `RANK_LIVES_S`), so that there are some. What one death costs
follows from that: the time that the training took longer, over the number of deaths; and so does the share kept at the
rate itself. With ``--large`` the training has that rate, and takes ten minutes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from farandole.errors import LaunchError
from farandole.launching import launch
from farandole.runtime import guard
from farandole.runtime.record import Summary
from farandole_tools.bench.recovery import state_bytes
from farandole_tools.forked_ranks import fork_server

RANK_LIVES_S = 32 * 30 * 60 / 62  # on average
RECIPE: dict[str, Any] = {"data": "mnist5k", "hidden": 256, "batch": 512, "lr": 0.05}
INPUTS = 784
TRIED = 60  # steps, from which the number follows that takes as long as is planned
UNDISTURBED = "no deaths"
TUNING = {UNDISTURBED: "the same training without --chaos, and without what replaces the dead"}
METHODS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {  # name → scenario, options, more where ranks die
    "membership": ("membership", {}, {"spawn": 100}),
    "membership with spares": ("membership", {}, {"spares": 6}),
    "backup": ("backup", {}, {"spawn": 100}),
    "DiLoCo": ("elastic_diloco", {"optimizer": "sgd"}, {"spawn": 100}),
    "parameter server": ("parameter_server", {"servers": 2, "replicas": 2}, {}),
}


@dataclass(frozen=True)
class Plan:
    """The seconds of each method's training, and how many times as often as every `RANK_LIVES_S` each rank dies."""

    seconds: float
    hurry: float


USUAL, LARGE = Plan(45, 10), Plan(600, 1)


@dataclass(frozen=True)
class Outcome:
    """One method's samples per second with deaths and without.

    Attributes:
        seconds: of the training with deaths.
    """

    calm: float
    struck: float
    seconds: float
    deaths: int

    @property
    def kept(self) -> float:
        return self.struck / self.calm

    @property
    def death_costs_s(self) -> float:
        """Return the seconds that one death has cost, on average; 0 without a death."""
        return self.seconds * (1 - self.kept) / self.deaths if self.deaths else 0.0

    def kept_at(self, mtbf_s: float) -> float:
        """Return the share that would be kept if there were a death every `mtbf_s` of the training's time."""
        return 1 - self.death_costs_s / mtbf_s


def rows(ranks: int, large: bool = False, plan: Plan | None = None) -> list[dict[str, Any]]:
    """Return a row for each method: seconds of a thousand samples, beside an undisturbed training.

    Args:
        large: ten minutes at the rate itself.

    Raises:
        LaunchError: a training failed.
    """
    fork_server.start()
    plan = plan or (LARGE if large else USUAL)
    with guard.temporary_folder("farandole-bench-") as folder:
        return [_row(name, ranks, plan, measured(name, ranks, plan, folder / name)) for name in METHODS]


def notes(found: list[dict[str, Any]]) -> list[str]:
    """Return what one death cost, and what would be kept at the rate itself."""
    return [
        f"{row['name']}: {row['deaths']} deaths in {row['seconds']:.0f} s, {row['death_costs_s']:.2f} s each; "
        f"with one in {row['mtbf_s']:.0f} s, {row['kept_at_rate']:.1%} would be kept"
        for row in found
    ]


def measured(name: str, ranks: int, plan: Plan, folder: Path) -> Outcome:
    """Train by one method: as long as planned while ranks die, and before and after that half as long undisturbed.

    Raises:
        LaunchError: a training failed, or every worker has died.
    """
    scenario, options, more = METHODS[name]
    folder.mkdir()

    def trained(label: str, seconds: float, **further: Any) -> Summary:
        steps = max(1, round(seconds / step_s))
        given = RECIPE | options | further
        started = ranks + further.get("spares", 0)
        return launch(scenario, started, timeout_s=10 * seconds + 120, steps=steps, out=folder / label, **given).summary

    step_s = 1.0 / TRIED
    tried = trained("tried", 1.0)
    step_s = tried.wall_s / TRIED  # a parameter server's record counts gradients
    before = trained("before", plan.seconds / 2)
    mtbf_s = RANK_LIVES_S / ranks / plan.hurry
    struck = trained("struck", plan.seconds, chaos=f"mtbf={mtbf_s}s,seed={ranks}", **more)
    after = trained("after", plan.seconds / 2)
    calm = (before.samples_per_s + after.samples_per_s) / 2
    return Outcome(calm, struck.samples_per_s, struck.wall_s, len(struck.faults))


def _row(name: str, ranks: int, plan: Plan, outcome: Outcome) -> dict[str, Any]:
    if not outcome.struck:
        raise LaunchError(f"{name} has used no sample while ranks died")
    rate_s = RANK_LIVES_S / ranks
    return {
        "name": name,
        "size": state_bytes(RECIPE, INPUTS),
        "ranks": ranks,
        "median_s": 1000 / outcome.struck,
        "peers": {UNDISTURBED: {"median_s": 1000 / outcome.calm, "ratio": outcome.kept}},
        "hurry": plan.hurry,
        "seconds": outcome.seconds,
        "deaths": outcome.deaths,
        "death_costs_s": outcome.death_costs_s,
        "mtbf_s": rate_s,
        "kept_at_rate": outcome.kept_at(rate_s),
    }
