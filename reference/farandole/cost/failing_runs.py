"""Runs with a failure, for `farandole simulate --validate`: `goodput` with a rank that is killed at a given step.

    restart       the work since the last checkpoint is repeated, after a pause: the job ends, waits, and starts again
    membership    three workers go on after a pause; a step of the same batch takes them 4/3 of the time
    backup        the same, and the work since the last backup is repeated

The pause is that of another method. `restart`'s is measured with a killed launch of `sync_sgd`: all of its time but its
steps, and the supervisor's wait. `membership`'s is that of a killed run of `backup`, and `backup`'s of `membership`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from farandole.cost.goodput import Group, Recovery
from farandole.cost.validated_runs import WIDE, WORKERS
from farandole.runtime.record import Run

STEPS, KILLED_AT = 40, 21
CHECKPOINT_EVERY, BACKUP_EVERY = 8, 5
BACKOFF_S = 1.0
KILL = f"rank=2,step={KILLED_AT}"


@dataclass(frozen=True)
class FailingCase:
    """A method of recovery, and how it runs here.

    Attributes:
        calibration: the run of another method that gives its pause.
        save_every: steps between two saves; 0: none, and no work is lost.
        replaced: whether a worker takes the dead one's place.
    """

    method: str
    options: Mapping[str, Any]
    calibration: str
    save_every: int
    replaced: bool = False


FAILING = (
    FailingCase("restart", {"checkpoint_every": CHECKPOINT_EVERY}, "killed sync_sgd", CHECKPOINT_EVERY, replaced=True),
    FailingCase("membership", {}, "killed backup", 0),
    FailingCase("backup", {"backup_every": BACKUP_EVERY, "checkpoint_every": 0}, "killed membership", BACKUP_EVERY),
)  # fmt: skip


class Planned(Group):
    """A group whose workers fail at given times, instead of at random ones."""

    def __init__(self, recovery: Recovery, workers: int, failures_s: Sequence[float]) -> None:
        super().__init__(recovery, workers, inf, inf, np.random.default_rng(0))
        self._planned = list(failures_s)

    def _next_failure(self) -> float:
        return self._planned[0] if self._planned else inf

    def _lose_one(self) -> None:
        self._planned.pop(0)
        super()._lose_one()


def seconds_for(work_s: float, recovery: Recovery, workers: int, failures_s: Sequence[float]) -> float:
    """Return after how many seconds the group has done lasting work of `work_s` worker-seconds."""
    low, high = work_s / workers, 2 * work_s / workers + len(failures_s) * (recovery.pause_s + work_s)
    for _ in range(50):
        middle = (low + high) / 2
        shares = Planned(recovery, workers, failures_s).follow(middle)
        low, high = (low, middle) if shares.goodput * middle * workers >= work_s else (middle, high)
    return high


def predicted_s(case: FailingCase, step_s: float, pause_s: float) -> float:
    """Return the seconds of a step, over the whole run.

    Args:
        step_s: of a step without a failure, of all workers.
    """
    recovery = Recovery(pause_s, case.save_every * step_s, 0.0, None if case.replaced else 0)
    return seconds_for(STEPS * step_s * WORKERS, recovery, WORKERS, [KILLED_AT * step_s]) / STEPS


def options_of(case: FailingCase) -> dict[str, Any]:
    """Return the options of the run, with the kill."""
    return dict(WIDE) | {"steps": STEPS, "optimizer": "sgd", "fail": KILL} | dict(case.options)


def regrouping_s(run: Run, step_s: float) -> float:
    """Return the pause of a run that went on without the dead rank, up to the first step after it."""
    [fault] = run.summary.faults
    return max(0.0, float(fault["resumed_s"]) - step_s * WORKERS / (WORKERS - 1))


def starting_s(elapsed_s: float, step_s: float) -> float:
    """Return the pause of a restart, from the seconds of a launch in which a rank was killed at step KILLED_AT."""
    return max(0.0, elapsed_s - KILLED_AT * step_s) + BACKOFF_S
