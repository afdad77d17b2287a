"""How ranks divide a model and its data: a grid's axes, the positions of a sequence, the units of ZeRO.

layout_picture.grid(Grid(data=2, tensor=4))         who stands where, and who talks to whom along each axis
layout_picture.context(zigzag(8, 4))                which rank computes which part of attention, in which step
layout_picture.sharded(list(steps(3, 4)))           what a rank computes and communicates, unit by unit
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from farandole.errors import UsageError
from farandole.model_parallel.context.placement import Placement, length, looks_at
from farandole.model_parallel.grid import Grid
from farandole.report.colours import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SERIES, SKY, YELLOW
from farandole.sharded.steps import Step

MOST_RANKS = 64
MOST_PARTS = 32  # of a sequence
MOST_STEPS = 120
DARK = (BLUE, GREEN, RED, PURPLE, ORANGE, SKY, GREY, YELLOW)
COLOURS = {"gather": ORANGE, "forward": BLUE, "backward": GREEN, "reduce": PURPLE}
INK = "#222222"


def grid(layout: Grid) -> Figure:
    """Draw a row for each axis, in which ranks with the same number talk to each other.

    Raises:
        UsageError: more ranks than could be told apart.
    """
    _limit(layout.ranks, MOST_RANKS, "ranks")
    axes_of = [axis for axis, length_ in layout.lengths.items() if length_ > 1]
    drawing = Figure(figsize=(max(4.0, 0.32 * layout.ranks + 1.2), 0.42 * len(axes_of) + 0.9), layout="constrained")
    ax = drawing.subplots()
    for row, axis in enumerate(axes_of):
        for number, group in enumerate(layout.lines(axis)):
            for rank in group:
                _box(ax, rank, -row, SERIES[number % len(SERIES)], str(number))
    ax.set(xlim=(-0.1, layout.ranks), ylim=(-len(axes_of) + 0.9, 1.1), title=str(layout))
    ax.set_yticks([-row + 0.45 for row in range(len(axes_of))], axes_of)
    ax.set_xticks([rank + 0.45 for rank in range(layout.ranks)], [str(rank) for rank in range(layout.ranks)])
    _bare(ax, "rank")
    return drawing


def context(placement: Placement) -> Figure:
    """Draw attention as a square for each part of the queries (row) with each part of the keys before it (column).

    Its colour is the rank that computes it, its number the step of the ring in which that rank has the keys.

    Raises:
        UsageError: more parts than could be told apart.
    """
    ranks = len(placement)
    parts = sorted((part.start, part, rank) for rank, own in enumerate(placement) for part in own)
    _limit(len(parts), MOST_PARTS, "parts of a sequence")
    drawing = Figure(figsize=(0.45 * len(parts) + 2.2, 0.45 * len(parts) + 1.0), layout="constrained")
    ax = drawing.subplots()
    for row, (_, queries, rank) in enumerate(parts):
        for column, (_, keys, owner) in enumerate(parts):
            if looks_at(queries, keys):
                _box(ax, column, -row, DARK[rank % len(DARK)], str((rank - owner) % ranks))
    labels = [f"rank {rank}: {part.start}–{part.stop - 1}" for _, part, rank in parts]
    ax.set(xlim=(-0.1, len(parts)), ylim=(-len(parts) + 0.9, 1.1), aspect="equal")
    ax.set_title(f"{sum(map(length, placement))} positions on {ranks} ranks", fontsize=10)
    ax.set_yticks([-row + 0.45 for row in range(len(parts))], labels)
    ax.set_xticks([])
    _bare(ax, "keys; below each other: queries")
    return drawing


def sharded(steps: Sequence[Step], title: str = "") -> Figure:
    """Draw a rank's step in order: what it computes above, what it communicates below, with the number of the unit.

    Raises:
        UsageError: more steps than could be told apart.
    """
    _limit(len(steps), MOST_STEPS, "computations and collectives")
    drawing = Figure(figsize=(max(5.0, 0.3 * len(steps) + 1.6), 1.9), layout="constrained")
    ax = drawing.subplots()
    for place, step in enumerate(steps):
        _box(ax, place, -(step.kind in ("gather", "reduce")), COLOURS[step.kind], str(step.unit))
    ax.set(xlim=(-0.1, len(steps)), ylim=(-1.1, 1.1), title=title, xticks=[])
    ax.set_yticks([0.45, -0.55], ["computes", "communicates"])
    _bare(ax, "in this order")
    shown = [kind for kind in COLOURS if any(step.kind == kind for step in steps)]
    drawing.legend(handles=[Patch(color=COLOURS[kind], label=kind) for kind in shown], loc="outside lower center",
                   ncols=len(shown), frameon=False)  # fmt: skip
    return drawing


def _box(axes: Axes, x: float, y: float, colour: str, text: str) -> None:
    axes.add_patch(Rectangle((x, y), 0.9, 0.9, facecolor=colour))
    ink = INK if colour == YELLOW else "white"
    axes.text(x + 0.45, y + 0.43, text, ha="center", va="center", color=ink, fontsize=8)


def _bare(axes: Axes, below: str) -> None:
    axes.tick_params(length=0, labelsize=8)
    axes.set_xlabel(below, fontsize=9)
    axes.spines[:].set_visible(False)


def _limit(number: int, most: int, what: str) -> None:
    if number > most:
        raise UsageError(f"a picture of {number} {what}: give at most {most}, more cannot be told apart")
