"""Pictures of a model and its data on ranks: a grid's axes, the positions of a sequence, heads, experts.

layout_picture.grid(Grid(data=2, tensor=4))         who stands where, and who talks to whom along each axis
layout_picture.context(zigzag(8, 4))                which rank computes which part of attention, in which step
layout_picture.ulysses(contiguous(8, 4), heads=8)   which rank holds which heads and positions, and sends them where
layout_picture.experts(choices, plan)               which experts each rank's tokens choose, and what is dropped
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from numpy.typing import NDArray

from farandole.errors import UsageError
from farandole.model_parallel.context.placement import Placement, length, looks_at
from farandole.model_parallel.grid import Grid
from farandole.report.colours import BLUE, GREEN, GREY, ORANGE, PURPLE, RED, SERIES, SKY, YELLOW

MOST_RANKS = 64
MOST_PARTS = 32  # of a sequence
MOST_TOKENS = 64
DARK = (BLUE, GREEN, RED, PURPLE, ORANGE, SKY, GREY, YELLOW)
INK = "#222222"


def grid(layout: Grid) -> Figure:
    """Draw a row for each axis, in which ranks with the same number talk to each other.

    Raises:
        UsageError: more ranks than could be told apart.
    """
    limit(layout.ranks, MOST_RANKS, "ranks")
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
    bare(ax, "rank")
    return drawing


def context(placement: Placement) -> Figure:
    """Draw attention as a square for each part of the queries (row) with each part of the keys before it (column).

    Its colour is the rank that computes it, its number the step of the ring in which that rank has the keys.

    Raises:
        UsageError: more parts than could be told apart.
    """
    ranks = len(placement)
    parts = sorted((part.start, part, rank) for rank, own in enumerate(placement) for part in own)
    limit(len(parts), MOST_PARTS, "parts of a sequence")
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
    bare(ax, "keys; below each other: queries")
    return drawing


def ulysses(placement: Placement, heads: int) -> Figure:
    """Draw which rank holds which heads and positions, outside attention and in it. The number is the partner.

    Args:
        placement: one part of the positions for each rank.

    Raises:
        UsageError: more ranks or heads than could be told apart.
    """
    ranks = len(placement)
    limit(ranks, MOST_PARTS, "parts of a sequence")
    limit(heads, MOST_PARTS, "heads")
    drawing = Figure(figsize=(0.8 * ranks + 2.6, 0.38 * heads + 1.5), layout="constrained")
    names = ("outside attention: all heads", "in attention: all positions")
    for ax, name, by_heads in zip(drawing.subplots(1, 2), names, (False, True), strict=True):
        for head in range(heads):
            of_head = head * ranks // heads
            for part in range(ranks):
                owner, partner = (of_head, part) if by_heads else (part, of_head)
                _box(ax, part, -head, DARK[owner % len(DARK)], str(partner))
        ax.set(xlim=(-0.1, ranks), ylim=(-heads + 0.9, 1.1), aspect="equal")
        ax.set_title(name, fontsize=9)
        ax.set_yticks([-head + 0.45 for head in range(heads)], [f"head {head}" for head in range(heads)])
        ax.set_xticks([part + 0.45 for part in range(ranks)], [f"{part[0].start}–" for part in placement])
        bare(ax, "number: from rank" if by_heads else "number: to rank")
    _colours_of(drawing, ranks)
    return drawing


def experts(choices: NDArray[np.int64], kept: NDArray[np.bool_], placement: Sequence[range], ranks: int) -> Figure:
    """Draw a row for each token, and a box where it chooses an expert: the 1st, 2nd, … of its choices.

    Args:
        choices: (k, tokens of all ranks), numbers of experts; each rank has as many tokens.
        kept: of the same shape: the expert accepts it.
        placement: each rank's experts.
        ranks: how many have tokens.

    Raises:
        UsageError: more tokens or experts than could be told apart.
    """
    tokens, count = choices.shape[1], placement[-1].stop
    limit(tokens, MOST_TOKENS, "tokens")
    limit(count, MOST_PARTS, "experts")
    drawing = Figure(figsize=(max(4.5, 0.4 * count + 2.2), 0.24 * tokens + 1.5), layout="constrained")
    ax = drawing.subplots()
    for place, chosen in enumerate(choices):
        for token, expert in enumerate(chosen):
            colour = DARK[(token * ranks // tokens) % len(DARK)]
            _box(ax, expert, -token, colour, str(place + 1), hollow=not kept[place, token])
    ends = [own.start - 0.05 for own in placement if own.start] + [count - 0.05]
    ax.vlines(ends[:-1], -tokens + 1, 1, colors="#888888", linewidths=0.8)
    ax.hlines([-token + 0.95 for token in range(tokens // ranks, tokens, tokens // ranks)], 0, count, colors="#DDDDDD")
    ax.set(xlim=(-0.1, count), ylim=(-tokens + 0.9, 1.1))
    ax.set_yticks([])
    ax.set_xticks([expert + 0.45 for expert in range(count)], [str(expert) for expert in range(count)])
    ax.set_title(f"{tokens} tokens, {len(choices)} of {count} experts each", fontsize=10)
    bare(ax, "expert; a line where another rank's begin; hollow: dropped")
    _colours_of(drawing, ranks)
    return drawing


def _colours_of(drawing: Figure, ranks: int) -> None:
    shown = [Patch(color=DARK[rank % len(DARK)], label=f"rank {rank}") for rank in range(ranks)]
    drawing.legend(handles=shown, loc="outside lower center", ncols=min(ranks, 4), frameon=False, fontsize=8)


def _box(axes: Axes, x: float, y: float, colour: str, text: str, *, hollow: bool = False) -> None:
    face = "white" if hollow else colour
    axes.add_patch(Rectangle((x, y), 0.9, 0.9, facecolor=face, edgecolor=colour if hollow else "none"))
    ink = INK if hollow or colour == YELLOW else "white"
    axes.text(x + 0.45, y + 0.43, text, ha="center", va="center", color=ink, fontsize=8)


def bare(axes: Axes, below: str) -> None:
    """Leave an axis' labels, and no frame."""
    axes.tick_params(length=0, labelsize=8)
    axes.set_xlabel(below, fontsize=9)
    axes.spines[:].set_visible(False)


def limit(number: int, most: int, what: str) -> None:
    """Refuse a picture of more than `most`, for instance ranks.

    Raises:
        UsageError: it is more.
    """
    if number > most:
        raise UsageError(f"a picture of {number} {what}: give at most {most}, more cannot be told apart")
