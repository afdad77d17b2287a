"""Ways of updating on one axis: what a second and an update are worth, how stale, who waited.

Five pictures. The loss over the wall clock says which way is fastest, and the loss over steps what
the same number of samples has taught; they seldom agree. The staleness and the lead (`runtime.record`)
say how far the workers were apart, and the last picture who paid for keeping them together.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from farandole.report import curves
from farandole.report.colours import SERIES
from farandole.report.run_name import label
from farandole.runtime.record import Run

EXACT = 8  # histograms show each value up to here, then one range after the other, each twice as long


def draw(runs: Mapping[str, Run], file: Path) -> Path:
    """Draw all five into `file`."""
    figure = Figure(figsize=(12, 7), layout="constrained")
    above, below = figure.subfigures(2, 1, squeeze=False)[:, 0]
    by_time, by_step = above.subplots(1, 2, sharey=True)
    curves.plot(runs, by_step, by_time)
    by_time.set_ylabel("training loss")
    by_step.set(xlabel="step (as many samples as one batch)", ylabel="")
    staleness, lead, waiting = below.subplots(1, 3)
    plot_staleness(runs, staleness)
    plot_lead(runs, lead)
    plot_waiting(runs, waiting)
    figure.savefig(file, dpi=120)
    return file


def plot_staleness(runs: Mapping[str, Run], axes: Axes) -> None:
    """Each run's histogram: others' updates between a gradient's pull and its application."""
    _plot_histograms({name: run.summary.staleness for name, run in runs.items()}, axes)
    axes.set(xlabel="staleness (updates by others)", ylabel="share of gradients")


def plot_lead(runs: Mapping[str, Run], axes: Axes) -> None:
    """Each run's histogram: how far a worker was ahead of the slowest when it started an iteration."""
    _plot_histograms({name: run.summary.lead for name, run in runs.items()}, axes)
    axes.set(xlabel="lead (iterations ahead of the slowest)", ylabel="share of iterations")


def plot_waiting(runs: Mapping[str, Run], axes: Axes) -> None:
    """The seconds that each rank has waited for others, one bar per run."""
    ranks = max((run.summary.ranks for run in runs.values()), default=0)
    _plot_bars({name: np.array(run.summary.wait_s) for name, run in runs.items()}, axes)
    axes.set_xticks(range(ranks), [str(rank) for rank in range(ranks)])
    axes.set(xlabel="rank", ylabel="seconds of waiting")


def _plot_histograms(histograms: Mapping[str, Mapping[str, int] | None], axes: Axes) -> None:
    """Shares of equal bins, side by side; a run without a histogram keeps its place and colour."""
    largest = max((int(value) for histogram in histograms.values() for value in histogram or {}), default=0)
    starts = bins(largest)
    shares = {}
    for name, histogram in histograms.items():
        counts = np.zeros(len(starts))
        for value, count in (histogram or {}).items():
            counts[np.searchsorted(starts, int(value), side="right") - 1] += count
        shares[name] = counts / max(1, counts.sum())
    _plot_bars(shares, axes)
    ends = [*starts[1:], largest + 1]
    labels = [f"{a}" if b - a == 1 else f"{a}–{b - 1}" for a, b in zip(starts, ends, strict=True)]
    axes.set_xticks(range(len(starts)), labels, rotation=90 if len(starts) > EXACT + 1 else 0)


def bins(largest: int) -> list[int]:
    """Where a histogram's bins begin, for values 0 … `largest`."""
    starts = list(range(min(largest, EXACT) + 1))
    start = EXACT + 1
    while start <= largest:
        starts.append(start)
        start = 2 * start - 1
    return starts


def _plot_bars(heights: Mapping[str, np.ndarray], axes: Axes) -> None:
    width = 0.8 / max(1, len(heights))
    for number, (name, values) in enumerate(heights.items()):
        left = np.arange(len(values)) + (number - (len(heights) - 1) / 2) * width
        axes.bar(left, values, width, color=SERIES[number % len(SERIES)], label=label(name))
    axes.spines[["top", "right"]].set_visible(False)
