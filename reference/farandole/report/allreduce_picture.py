"""The picture of `farandole bench allreduce`: times over the vector's size, beside the cost model."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from farandole.report.colours import SERIES
from farandole.report.table import binary

INK = "#444444"
COLOURS = (*SERIES, INK, "#8B5A2B", "#A0A0A0", "#7FBF3F")
DASHES = ("--", "-.", ":", (0, (1, 3)), (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
Row = dict[str, Any]


def draw(rows: list[Row], file: Path) -> Path:
    """Draw the rows of the benchmark as a picture in `file`."""
    figure(rows).savefig(file, dpi=110)
    return file


def figure(rows: list[Row]) -> Figure:
    """On the left the schedules, dots measured and lines by the model; on the right the fast ones and the peers."""
    names = list(dict.fromkeys(row["name"] for row in rows))
    colours = dict(zip(names, cycle(COLOURS), strict=False))
    modelled = [name for name in names if any("model" in row for row in rows if row["name"] == name)]
    drawing = Figure(figsize=(11, 4.6), layout="constrained")
    left, right = drawing.subplots(1, 2, sharex=True, sharey=True)
    for name in modelled:
        its = [row for row in rows if row["name"] == name]
        _line(left, its, [row["model"]["predicted_s"] for row in its], color=colours[name], linewidth=1.2)
        _line(left, its, [row["median_s"] for row in its], color=colours[name], marker="o", linewidth=0, label=name)
    _style(left, "schedules: dots measured, lines by the model")
    best = min(modelled, key=lambda name: max(row["median_s"] for row in rows if row["name"] == name))
    for name in [best, *(name for name in names if name not in modelled)]:
        its = [row for row in rows if row["name"] == name]
        _line(right, its, [row["median_s"] for row in its], color=colours[name], marker="o", markersize=4, label=name)
    its = [row for row in rows if row["name"] == names[0]]
    for peer, dashes in zip(its[0]["peers"], cycle(DASHES), strict=False):
        if all("median_s" in row["peers"][peer] for row in its):
            seconds = [row["peers"][peer]["median_s"] for row in its]
            _line(right, its, seconds, color=INK, linestyle=dashes, label=peer)
    _style(right, "and others")
    left.set_ylabel(f"milliseconds, {rows[0]['ranks']} ranks")
    return drawing


def _line(axes: Axes, rows: list[Row], seconds: list[float], **style: Any) -> None:
    axes.loglog([row["size"] for row in rows], [1e3 * each for each in seconds], **style)


def _style(axes: Axes, title: str) -> None:
    axes.set_title(title, fontsize=10)
    axes.set_xlabel("size of the vector")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: binary(size)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda ms, _: f"{ms:g}"))
    axes.set_xticks([1 << power for power in (12, 16, 20, 24, 26)])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
