"""``farandole draw grid``, ``context``, ``ulysses`` and ``experts``: how ranks divide a model and its data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import cyclopts
from cyclopts import Parameter
from rich.console import Console
from rich.table import Column, Table

from farandole.cli.pictures import save
from farandole.errors import UsageError
from farandole.runtime.numbers import AtLeastOne, NotNegativeReal, Seed

Ranks = Annotated[AtLeastOne, Parameter(alias="-n")]


def add_to(app: cyclopts.App) -> None:
    """Add the commands to ``farandole draw``."""
    app.command(_grid, name="grid")
    app.command(_context, name="context")
    app.command(_ulysses, name="ulysses")
    app.command(_experts, name="experts")


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


def _ulysses(*, ranks: Ranks = 4, heads: AtLeastOne = 8, positions: AtLeastOne = 64, out: Path | None = None) -> None:
    """Which rank holds which heads and positions, outside and in Ulysses' attention, and where it sends them.

    Args:
        ranks: how many; they must divide the heads.
        heads: of attention.
        positions: of the sequence.
        out: the picture, a .png, .svg or .pdf. [default: as ulysses-4x8.png, in the current folder]
    """
    from farandole.model_parallel.context.placement import contiguous
    from farandole.model_parallel.context.traffic import attention_bytes
    from farandole.model_parallel.context.ulysses import check_heads
    from farandole.report import layout_picture

    check_heads(heads, ranks)
    placement = contiguous(positions, ranks)
    file = out or Path(f"ulysses-{ranks}x{heads}.png")
    save(file, lambda: layout_picture.ulysses(placement, heads).savefig(file, dpi=120))
    table = Table("a rank sends, in one layer", *(Column(way, justify="right") for way in ("forward", "backward")))
    for attention in ("ulysses", "ring"):
        most = [attention_bytes(attention, placement, rank, heads) for rank in range(ranks)]
        table.add_row(attention, *(str(max(sent[way] for sent in most)) for way in ("forward", "backward")))
    Console().print(table)
    print(f"counted in vectors of one head at one position, of which there are {heads * positions}")
    print(f"the picture: {file}")


def _experts(
    *,
    ranks: Ranks = 4,
    experts: AtLeastOne = 8,
    top_k: AtLeastOne = 2,
    capacity: NotNegativeReal = 0.0,
    tokens: AtLeastOne = 8,
    seed: Seed = 0,
    out: Path | None = None,
) -> None:
    """Which experts each rank's tokens choose, which rank holds them, and what a capacity drops.

    The router is untrained: its odds are drawn at random.

    Args:
        ranks: how many.
        experts: of the layer, divided over the ranks.
        top_k: experts that a token chooses.
        capacity: choices that an expert accepts, as a multiple of an even share; 0: all.
        tokens: of each rank.
        seed: of the router's odds.
        out: the picture, a .png, .svg or .pdf. [default: as experts-4x8.png, in the current folder]
    """
    import numpy as np
    import torch

    from farandole.model_parallel.expert import routing
    from farandole.model_parallel.expert.plan import Plan, capacity_of, divided
    from farandole.report import layout_picture

    if top_k > experts:
        raise UsageError(f"--top-k {top_k}: there are {experts} experts")
    odds = torch.randn(ranks * tokens, experts, generator=torch.Generator().manual_seed(seed)).softmax(1)
    choices, _ = routing.choose(odds, top_k)
    by_rank = choices.split(tokens, dim=1)
    chosen = torch.stack([routing.count(each, experts) for each in by_rank]).numpy()
    plan = Plan.of(divided(experts, ranks), chosen, capacity_of(capacity, ranks * tokens, top_k, experts))
    kept = np.zeros((ranks, top_k * tokens), dtype=bool)
    for rank, of_rank in enumerate(by_rank):
        kept[rank, routing.accepted(of_rank, torch.from_numpy(plan.kept[rank].copy())).numpy()] = True
    accepted = kept.reshape(ranks, top_k, tokens).transpose(1, 0, 2).reshape(top_k, -1)
    file = out or Path(f"experts-{ranks}x{experts}.png")

    def picture() -> None:
        layout_picture.experts(choices.numpy(), accepted, plan.placement, ranks).savefig(file, dpi=120)

    save(file, picture)
    table = Table("rows from", *(Column(f"to rank {rank}", justify="right") for rank in range(ranks)))
    for rank, rows in enumerate(plan.rows):
        table.add_row(f"rank {rank}", *map(str, rows))
    Console().print(table)
    print(f"the busiest expert is chosen {plan.shares.max() * experts:.2f} times as often as the mean; "
          f"dropped: {plan.dropped} of {choices.numel()} choices")  # fmt: skip
    print(f"the picture: {file}")
