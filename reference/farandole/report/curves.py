"""Loss curves of one run or several, over steps and over the wall clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter, LogLocator, NullFormatter

from farandole.report.colours import SERIES
from farandole.report.run_name import label
from farandole.runtime.record import Run

DASHES = ("-", "--", ":", "-.")  # line styles, one for each pass through the colours
LARGEST = 1e100  # losses beyond it, of a run that diverges, are left out: they would exceed the axis's own numbers
FAINT = "#CCCCCC"
IN_THE_PICTURE = 6  # largest number of runs with the legend inside the picture


@dataclass(frozen=True)
class Curve:
    """The smoothed losses of a run, with the step and the second of each. Not a number: no loss there to draw."""

    steps: list[int]
    seconds: list[float]
    losses: np.ndarray

    @classmethod
    def of(cls, run: Run) -> Curve:
        """Read the metrics of a run."""
        metrics = run.metrics
        losses = np.array([line["loss"] for line in metrics], dtype=float)
        losses = smooth(np.where(np.abs(losses) <= LARGEST, losses, np.nan))
        losses[losses <= 0] = np.nan  # a loss of exactly 0 has no place on a logarithmic axis
        return cls([line["step"] for line in metrics], [line["wall_s"] for line in metrics], losses)

    def plot(self, by_step: Axes, by_time: Axes, **style: Any) -> None:
        """Draw it on both axes."""
        by_step.plot(self.steps, self.losses, **style)
        by_time.plot(self.seconds, self.losses, **style)


def draw(runs: Mapping[str, Run], file: Path) -> Path:
    """Draw the training loss of each run, twice: what a step is worth, and what a second is worth."""
    figure = Figure(figsize=(10, 3.6) if len(runs) <= IN_THE_PICTURE else (12, 4.4), layout="constrained")
    by_step, by_time = figure.subplots(1, 2, sharey=True)
    plot(runs, by_step, by_time)
    figure.savefig(file, dpi=120)
    return file


def draw_beside(curves: Mapping[str, Curve], coloured: Mapping[str, str], file: Path) -> Path:
    """Draw some curves in their colours, and the others in grey behind them: one of several pictures on the same axes.

    Args:
        coloured: name → colour, of those that the picture is about; they have the legend, below the axes.
    """
    beside(curves, coloured).savefig(file, dpi=120)
    return file


def beside(curves: Mapping[str, Curve], coloured: Mapping[str, str]) -> Figure:
    """Return the picture of `draw_beside`."""
    figure = Figure(figsize=(4.6, 5.2), layout="constrained")
    by_time, by_step = figure.subplots(2, 1, sharey=True)
    for name, curve in curves.items():
        if name not in coloured:
            curve.plot(by_step, by_time, color=FAINT, linewidth=0.8)
    for number, (name, colour) in enumerate(coloured.items()):
        style = {"color": colour, "linestyle": DASHES[number % len(DASHES)], "label": label(name)}
        curves[name].plot(by_step, by_time, **style)
    _finish(by_step, by_time)
    by_time.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    by_time.yaxis.set_minor_formatter(NullFormatter())
    by_time.set_ylabel("training loss")
    handles, labels = by_time.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False, handlelength=3)
    return figure


def plot(runs: Mapping[str, Run], by_step: Axes, by_time: Axes) -> None:
    """The same on axes of the caller's."""
    for number, (name, run) in enumerate(runs.items()):
        again, colour = divmod(number, len(SERIES))
        style = {"color": SERIES[colour], "linestyle": DASHES[again % len(DASHES)], "label": label(name)}
        Curve.of(run).plot(by_step, by_time, **style)
    _finish(by_step, by_time)
    if len(runs) <= IN_THE_PICTURE:
        by_time.legend(frameon=False)
    else:  # inside, the legend would hide the curves
        by_time.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5), handlelength=3)


def _finish(by_step: Axes, by_time: Axes) -> None:
    by_step.set(xlabel="step", ylabel="training loss")
    by_time.set(xlabel="seconds")
    for axes in (by_step, by_time):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.5)))
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)


def smooth(losses: np.ndarray, window: int = 10) -> np.ndarray:
    """Return the mean over each value and up to `window` − 1 before it: one batch's loss is noisy."""
    sums = np.cumsum(losses)
    sums[window:] = sums[window:] - sums[:-window]
    return sums / np.minimum(np.arange(1, len(losses) + 1), window)
