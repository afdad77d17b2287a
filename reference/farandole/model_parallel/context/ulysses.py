"""Ulysses: an all-to-all turns a part of the positions with all heads into all positions with a part of the heads.

    before     rank r has its T/P positions of all H heads        projections, norms, feed-forward: by position
    between    rank r has all T positions of its H/P heads        attention, as on one rank
    after      as before

One all-to-all takes queries, keys and values there, one takes the answers back. Blocks must be equally long, so shorter
parts are padded to the longest.

Cost for n = samples·T·width numbers: 3 + 1 forward and 1 + 3 backward, of (P−1)/P² n each. With more ranks every rank
sends less, while in the ring it sends as much as ever. But the number of ranks is limited by the heads, which it must
divide. Source: Jacobs et al., "DeepSpeed Ulysses: system optimizations for enabling training of extreme long sequence
transformer models", 2023.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad, scaled_dot_product_attention

from farandole.errors import UsageError
from farandole.model_parallel.context.exchange import ContextGroup
from farandole.model_parallel.context.placement import length
from farandole.model_parallel.tensor.exchange import apply


def check_heads(heads: int, ranks: int) -> None:
    """Refuse heads that the ranks do not divide.

    Raises:
        UsageError: with the numbers of ranks that do.
    """
    if heads % ranks:
        fitting = [str(number) for number in range(1, heads + 1) if heads % number == 0]
        raise UsageError(
            f"--attention ulysses: {heads} heads cannot be divided equally over {ranks} ranks: "
            f"use {' or '.join(fitting)} ranks, another --hidden, or --attention ring"
        )


def ulysses_attention(query: Tensor, key: Tensor, value: Tensor, group: ContextGroup) -> Tensor:
    """Return causal attention of this rank's queries to all ranks' keys and values. Collective, backward as well.

    Args:
        query, key, value: (samples, heads, own positions, head width); the positions of the ranks follow each other.
    """
    if group.size == 1:
        return scaled_dot_product_attention(query, key, value, is_causal=True)
    query, key, value = apply(_ToHeads, torch.stack((query, key, value)), group)
    found = scaled_dot_product_attention(query, key, value, is_causal=True)
    return apply(_ToPositions, found, group)


def to_heads(x: Tensor, group: ContextGroup) -> Tensor:
    """(…, heads, own positions, width) → (…, heads/P, all positions, width). Collective."""
    lengths = [length(parts) for parts in group.placement]
    padded = pad(x, (0, 0, 0, max(lengths) - x.shape[-2]))
    blocks = padded.unflatten(-3, (group.size, -1)).movedim(-4, 0)  # block s: the heads of rank s
    arrived = group.all_to_all(blocks)
    return torch.cat([block[..., :long, :] for block, long in zip(arrived, lengths, strict=True)], -2)


def to_positions(x: Tensor, group: ContextGroup) -> Tensor:
    """(…, heads/P, all positions, width) → (…, heads, own positions, width). Collective."""
    lengths = [length(parts) for parts in group.placement]
    blocks = [pad(part, (0, 0, 0, max(lengths) - part.shape[-2])) for part in x.split(lengths, -2)]
    arrived = group.all_to_all(torch.stack(blocks))
    return arrived.movedim(0, -4).flatten(-4, -3)[..., : lengths[group.rank], :]


class _ToHeads(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: ContextGroup) -> Tensor:
        ctx.group = group
        return to_heads(x, group)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return to_positions(gradient, ctx.group), None


class _ToPositions(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: ContextGroup) -> Tensor:
        ctx.group = group
        return to_positions(x, group)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return to_heads(gradient, ctx.group), None
