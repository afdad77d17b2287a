"""Claims about checkpoints on disk: what a snapshot that is written in the background costs."""

from __future__ import annotations

from math import ceil
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from farandole.claims.claim import Bound, Claim, Measured, Source
from farandole.claims.trainings import TIMEOUT_S
from farandole.launching import launch
from farandole.runtime import rank_starter

LIMIT = 0.035  # of the time
PROFILED = 5  # steps between two checkpoints, while their cost is measured
TRAINING: dict[str, Any] = {"data": "mnist5k", "hidden": 1024, "batch": 512, "lr": 0.05}  # a state of 15 MB


def trained(every: int, steps: int, *, in_background: bool = True) -> tuple[float, float]:
    """Train with checkpoints; return the seconds of a step, and the seconds that a rank waits for a checkpoint.

    The second is a mean over all checkpoints but the first, for which memory is new.
    """
    rank_starter.prepare()
    with TemporaryDirectory(prefix="farandole-claim-") as folder:
        run = launch(
            "restart", 2, steps=steps, checkpoint_every=every, checkpoint_async=in_background, timeout_s=TIMEOUT_S,
            out=Path(folder) / "run", **TRAINING,
        )  # fmt: skip
        waits = [event["dur"] / 1e6 for event in run.trace if event["name"] == "checkpoint" and event["pid"] == 0]
        return run.summary.wall_s / steps, fmean(waits[1:])


def overhead() -> Measured:
    """Choose the interval from a profile, as CheckFreq does, and measure the overhead with it."""
    step_s, wait_s = trained(PROFILED, 8 * PROFILED)
    every = ceil(wait_s / (LIMIT * max(step_s - wait_s / PROFILED, 1e-9)))
    step_with, wait_with = trained(every, 6 * every)
    _, in_foreground = trained(PROFILED, 8 * PROFILED, in_background=False)
    figures: dict[str, float | None] = {
        "steps between two checkpoints, from the profile": float(every),
        "overhead at this interval, percent": 100 * wait_with / (every * step_with),
        "wait for a checkpoint, in the foreground / in the background": in_foreground / wait_s,
        "seconds of work that a failure costs at most": every * step_with,
    }
    return Measured(figures)


CLAIMS = (
    Claim(
        "checkfreq-overhead",
        Source("Mohan et al.", 2021, "CheckFreq: frequent, fine-grained DNN checkpointing", "abstract"),
        "Checkpoints in two phases, at an interval chosen from a profile, cost at most 3.5 % of the time, and a "
        "failure costs seconds of work instead of hours.",
        "real ranks",
        "2 ranks, 5,000 handwritten digits, a state of 15 MB; the interval is the smallest with which the profiled "
        "wait is 3.5 % of the time. The paper profiles models of hundreds of megabytes on GPUs and adapts the interval "
        "during the training",
        15,
        overhead,
        (
            Bound("overhead at this interval, percent", "at most 3.5 % of the time", most=3.5, core=True,
                  otherwise="the profile and the training are measured on a shared machine, minutes apart"),
            Bound("seconds of work that a failure costs at most", "a failure costs less than a minute of work", most=60,
                  core=True),
            Bound("wait for a checkpoint, in the foreground / in the background", "the background halves the wait",
                  least=2),
        ),
        "recovery/checkpointer.py",
    ),
)  # fmt: skip
