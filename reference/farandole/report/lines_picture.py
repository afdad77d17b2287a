"""Curves over one axis, and single points beside them: what was measured, and what a paper prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path

from matplotlib.figure import Figure

from farandole.report.colours import SERIES

Points = Sequence[tuple[float, float]]
STYLES = ("o-", "s--", "^:")  # with seven colours each
MARKERS = "x+*1"  # of what is published


def draw(
    file: Path,
    x: str,
    y: str,
    lines: Mapping[str, Points],
    published: Mapping[str, Points] | None = None,
    log: str = "",
) -> Path:
    """Draw `lines` by name, and `published` points in black; what is not finite is left out.

    Args:
        x, y: what the axes are.
        log: the logarithmic axes: "", "x", "y" or "xy".
    """
    figure = Figure(figsize=(7, 3.4), layout="constrained")
    axes = figure.subplots()
    for number, (name, points) in enumerate(lines.items()):
        finite = [(at, value) for at, value in points if isfinite(value)]
        style = STYLES[number // len(SERIES) % len(STYLES)]
        axes.plot(*_columns(finite), style, color=SERIES[number % len(SERIES)], markersize=3, label=name)
    for number, (name, points) in enumerate((published or {}).items()):
        axes.plot(*_columns(points), "k" + MARKERS[number % len(MARKERS)], markersize=8, label=name)
    axes.set(xlabel=x, ylabel=y, xscale="log" if "x" in log else "linear", yscale="log" if "y" in log else "linear")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(file, dpi=90, metadata={"Software": None})
    return file


def _columns(points: Points) -> tuple[list[float], list[float]]:
    return [at for at, _ in points], [value for _, value in points]
