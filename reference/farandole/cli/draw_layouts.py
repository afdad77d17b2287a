"""``farandole draw grid``, ``context`` and ``zero``: how ranks divide a model and its data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import cyclopts
from cyclopts import Parameter
from rich.console import Console
from rich.table import Table

from farandole.cli.pictures import save
from farandole.errors import UsageError
from farandole.runtime.numbers import AtLeastOne

Ranks = Annotated[AtLeastOne, Parameter(alias="-n")]


def add_to(app: cyclopts.App) -> None:
    """Add the commands to ``farandole draw``."""
    app.command(_grid, name="grid")
    app.command(_context, name="context")
    app.command(_zero, name="zero")


def _grid(
    *,
    data_ranks: AtLeastOne = 1,
    shard_ranks: AtLeastOne = 1,
    pipeline_ranks: AtLeastOne = 1,
    expert_ranks: AtLeastOne = 1,
    context_ranks: AtLeastOne = 1,
    tensor_ranks: AtLeastOne = 1,
    out: Path | None = None,
) -> None:
    """Which rank stands where on six axes, and who talks to whom along each.

    Args:
        data_ranks: copies of everything.
        shard_ranks: ranks that divide parameters, gradients and optimizer state.
        pipeline_ranks: stages of each pipeline.
        expert_ranks: ranks that divide the experts.
        context_ranks: ranks that divide the positions.
        tensor_ranks: ranks that divide the matrices.
        out: the picture, a .png, .svg or .pdf. [default: as grid-2x1x1x1x1x4.png, in the current folder]
    """
    from farandole.model_parallel.grid import Grid
    from farandole.report import layout_picture

    layout = Grid(data_ranks, shard_ranks, pipeline_ranks, expert_ranks, context_ranks, tensor_ranks)
    if layout.ranks == 1:
        raise UsageError("a grid of 1 rank has no axis: give --data-ranks 2, for instance, or another axis")
    file = out or Path(f"grid-{'x'.join(map(str, layout.lengths.values()))}.png")
    save(file, lambda: layout_picture.grid(layout).savefig(file, dpi=120))
    table = Table("axis", "ranks that talk to each other")
    for axis, length in layout.lengths.items():
        if length > 1:
            table.add_row(axis, " | ".join(" ".join(map(str, line)) for line in layout.lines(axis)))
    Console().print(table)
    print(f"the picture: {file}")


def _context(
    *,
    ranks: Ranks = 4,
    positions: AtLeastOne = 64,
    placement: Literal["zigzag", "contiguous"] = "zigzag",
    out: Path | None = None,
) -> None:
    """Which rank computes which part of causal ring attention, and when.

    Args:
        ranks: how many.
        positions: of the sequence.
        placement: an early and a late part for each rank, or one part.
        out: the picture, a .png, .svg or .pdf. [default: as context-zigzag-4.png, in the current folder]
    """
    from farandole.model_parallel.context.placement import PLACEMENTS, work
    from farandole.report import layout_picture

    placed = PLACEMENTS[placement](positions, ranks)
    file = out or Path(f"context-{placement}-{ranks}.png")
    save(file, lambda: layout_picture.context(placed).savefig(file, dpi=120))
    pairs = work(placed)
    table = Table()
    for heading in ("rank", *(f"step {step}" for step in range(ranks)), "pairs"):
        table.add_column(heading, justify="right")
    for rank, of_rank in enumerate(pairs):
        table.add_row(str(rank), *map(str, of_rank), str(sum(of_rank)))
    Console().print(table)
    slowest = sum(max(of_rank[step] for of_rank in pairs) for step in range(ranks))
    mean = sum(map(sum, pairs)) / ranks
    print(f"the slowest rank of each step computes {slowest} pairs, {slowest / mean:.2f} times the mean of all ranks")
    print(f"the picture: {file}")


def _zero(
    *,
    stage: Literal[1, 2, 3] = 3,
    units: AtLeastOne = 4,
    accumulate: AtLeastOne = 1,
    out: Path | None = None,
) -> None:
    """What a rank computes and communicates in a step of ZeRO, unit by unit.

    Args:
        stage: as of `farandole run sharded`.
        units: parts of the model that are gathered together.
        accumulate: micro-batches.
        out: the picture, a .png, .svg or .pdf. [default: as zero-3-4x1.png, in the current folder]
    """
    from farandole.report import layout_picture
    from farandole.sharded.steps import halves, steps

    ordered = list(steps(stage, units, accumulate))
    file = out or Path(f"zero-{stage}-{units}x{accumulate}.png")
    save(file, lambda: layout_picture.sharded(ordered, f"ZeRO, stage {stage}").savefig(file, dpi=120))
    table = Table("collective", "how often")
    for kind in ("gather", "reduce"):
        table.add_row(kind, str(sum(step.kind == kind for step in ordered)))
    Console().print(table)
    print(f"a rank sends {halves(stage, accumulate)}·(N−1)/N of the parameters' bytes; data parallel: 2·(N−1)/N")
    print(f"the picture: {file}")
