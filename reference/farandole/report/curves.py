"""Loss curves of one run or several, over steps and over the wall clock."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter

from farandole.report.colours import SERIES
from farandole.report.run_name import label
from farandole.runtime.record import Run

DASHES = ("-", "--", ":", "-.")  # line styles, one for each pass through the colours
LARGEST = 1e100  # losses beyond it, of a run that diverges, are left out: they would exceed the axis's own numbers
IN_THE_PICTURE = 6  # largest number of runs with the legend inside the picture


def draw(runs: Mapping[str, Run], file: Path) -> Path:
    """Draw the training loss of each run, twice: what a step is worth, and what a second is worth."""
    figure = Figure(figsize=(10, 3.6) if len(runs) <= IN_THE_PICTURE else (12, 4.4), layout="constrained")
    by_step, by_time = figure.subplots(1, 2, sharey=True)
    plot(runs, by_step, by_time)
    figure.savefig(file, dpi=120)
    return file


def plot(runs: Mapping[str, Run], by_step: Axes, by_time: Axes) -> None:
    """The same on axes of the caller's."""
    for number, (name, run) in enumerate(runs.items()):
        again, colour = divmod(number, len(SERIES))
        style: dict[str, Any] = {"color": SERIES[colour], "linestyle": DASHES[again % len(DASHES)]}
        metrics = run.metrics
        losses = np.array([line["loss"] for line in metrics], dtype=float)
        losses = smooth(np.where(np.abs(losses) <= LARGEST, losses, np.nan))
        losses[losses <= 0] = np.nan  # a loss of exactly 0 has no place on a logarithmic axis
        by_step.plot([line["step"] for line in metrics], losses, **style, label=label(name))
        by_time.plot([line["wall_s"] for line in metrics], losses, **style, label=label(name))
    by_step.set(xlabel="step", ylabel="training loss")
    by_time.set(xlabel="seconds")
    for axes in (by_step, by_time):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.5)))
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    if len(runs) <= IN_THE_PICTURE:
        by_time.legend(frameon=False)
    else:  # inside, the legend would hide the curves
        by_time.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5), handlelength=3)


def smooth(losses: np.ndarray, window: int = 10) -> np.ndarray:
    """The mean over each value and up to `window` − 1 before it: one batch's loss is noisy."""
    sums = np.cumsum(losses)
    sums[window:] = sums[window:] - sums[:-window]
    return sums / np.minimum(np.arange(1, len(losses) + 1), window)
