"""Predicted over measured times of real runs, with the diagonal on which a right prediction lies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from farandole.report.colours import SERIES

MARKERS = "os^Dv"


def draw(file: Path, points: Mapping[str, Sequence[tuple[float, float]]]) -> Path:
    """Draw the points of each condition.

    Args:
        points: condition → (measured, predicted) in milliseconds.
    """
    figure = Figure(figsize=(6, 4.2), layout="constrained")
    axes = figure.subplots()
    every = [value for own in points.values() for point in own for value in point]
    ends = min(every) / 1.1, max(every) * 1.1
    axes.plot(ends, ends, color="0.6", linewidth=1, zorder=0, label="predicted = measured")
    for number, (name, own) in enumerate(points.items()):
        measured, predicted = zip(*own, strict=True)
        style = MARKERS[number % len(MARKERS)]
        axes.scatter(measured, predicted, s=18, marker=style, color=SERIES[number % len(SERIES)], label=name)
    axes.set(xlabel="measured, ms per step", ylabel="predicted, ms per step", xscale="log", yscale="log")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(file, dpi=90, metadata={"Software": None})
    return file
