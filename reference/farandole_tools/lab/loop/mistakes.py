"""The results of usual mistakes in lab 16, and the message for each."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from farandole_tools.lab.loop.expected import Divided, clipped, gradient, near, trained


def wrong_vector(
    model: nn.Module, found: Tensor, right: Tensor, mistakes: Sequence[tuple[Tensor, str]], what: str
) -> str:
    """Say what is wrong with a gradient, or with how far the parameters have moved; "" if nothing is."""
    if near(found, right):
        return ""
    if not bool(found.isfinite().all()):
        return f"{what} is not finite: the mean over no rows is no number"
    if not bool(found.any()):
        return f"{what} is 0: is it added up over the ranks?"
    for mistaken, text in mistakes:
        if near(found, mistaken) and not near(mistaken, right):
            return f"{what} is {text}"
    away = int((found - right).abs().argmax())
    return f"{what} is {found[away]:.6f} in an element of {where(model, away)}, where one process has {right[away]:.6f}"


def usual_mistakes(model: nn.Module, divided: Divided, rank: int) -> list[tuple[Tensor, str]]:
    """Return the results of usual mistakes in the mean over batches and ranks, each with its message."""
    size, batches = len(divided[0]), len(divided)
    own = [[gradient(model, rows) for rows in batch] for batch in divided]
    shares = [[len(rows) / sum(map(len, batch)) for rows in batch] for batch in divided]
    weighted = [[s * g for s, g in zip(*each, strict=True)] for each in zip(shares, own, strict=True)]
    whole = [torch.stack(each).sum(0) for each in weighted]
    mean = torch.stack(whole).mean(0)
    by_rank = [torch.stack([batch[r] for batch in own]).mean(0) for r in range(size)]
    total = torch.stack(by_rank).sum(0)
    lengths = [sum(map(len, batch)) for batch in divided]
    late = torch.stack([shares[-1][r] * by_rank[r] for r in range(size)]).sum(0)
    pooled = torch.stack([n * g for n, g in zip(lengths, whole, strict=True)]).sum(0) / sum(lengths)
    divide_by = "divide by the number of batches that are added up"
    return [
        (torch.stack([batch[rank] for batch in weighted]).mean(0), "this rank's own: is it added up over the ranks?"),
        (by_rank[rank], "this rank's own: is it added up over the ranks?"),
        (total, "the sum over the ranks: each rank counts by its share of the batch, len(rows) / of"),
        (total / size, "the plain mean over the ranks: a rank with fewer rows has to count less, by len(rows) / of"),
        (total * shares[0][rank], "the sum, times this rank's share: weight each rank's part before it is added up"),
        (mean * batches, f"the sum over the batches: {divide_by}"),
        (total * batches, f"the sum over ranks and batches: weight by len(rows) / of, and {divide_by}"),
        (whole[-1], "that of the last batch: the gradients of the others have been lost"),
        (whole[-1] / batches, "that of the last batch: the gradients of the others have been lost"),
        (late, "weighted by the shares of the last batch: a rank's share differs from batch to batch"),
        (pooled, "the mean over all rows: one process takes the mean of each batch, and of these the mean"),
        (-mean, "the negative of what it should be"),
    ]


def where(model: nn.Module, element: int) -> str:
    """Return the name of the parameter to which this element of the vector belongs."""
    for name, each in trained(model).items():
        if element < each.numel():
            return name
        element -= each.numel()
    raise IndexError(element)


def clipping_mistakes(
    model: nn.Module, parts: Sequence[Sequence[int]], bound: float, rank: int
) -> list[tuple[Tensor, str]]:
    own = [gradient(model, rows) for rows in parts]
    shares = [len(rows) / sum(map(len, parts)) for rows in parts]
    weighted = [s * g for s, g in zip(shares, own, strict=True)]
    mean = torch.stack(weighted).sum(0)
    before = "clipped before it is added up: the bound is for the mean gradient"
    alone = torch.cat([clipped(each, bound) for each in mean.split([each.numel() for each in trained(model).values()])])
    return [
        (mean, "the mean gradient as it is: it has to be clipped"),
        (torch.stack([clipped(each, bound) for each in weighted]).sum(0), before),
        (torch.stack([s * clipped(g, bound) for s, g in zip(shares, own, strict=True)]).sum(0), before),
        (mean * min(1.0, bound / (float(own[rank].norm()) + 1e-6)), "scaled by the norm of this rank's own gradient"),
        (mean * min(1.0, bound / (float(weighted[rank].norm()) + 1e-6)), "scaled by the norm of this rank's own"),
        (alone, "clipped for each parameter alone: the bound is for all of them together"),
        *[
            (clipped(wrong, bound), "bounded, but that of a wrong mean")
            for wrong, _ in usual_mistakes(model, [parts], rank)
        ],
    ]
