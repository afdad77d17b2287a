"""Ring attention: the schedule of ``steps`` over MPI, as an operator that autograd goes back through.

The block under way is received while attention to the one before is computed. A rank holds two blocks at a time, its
own keys and values, and the scores of one pair of parts: (T/2P)² per head and sample with a zig-zag.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from farandole.model_parallel.context import steps
from farandole.model_parallel.context.blockwise import BlockwiseAttention, BlockwiseGradient
from farandole.model_parallel.context.exchange import Arriving, ContextGroup
from farandole.model_parallel.context.steps import Attend, PassBlock, PassGradient
from farandole.model_parallel.tensor.exchange import apply


def ring_attention(query: Tensor, key: Tensor, value: Tensor, group: ContextGroup) -> Tensor:
    """Return causal attention of this rank's queries to all ranks' keys and values. Collective, backward as well.

    Args:
        query, key, value: (samples, heads, own positions, head width), at the positions `group.own`.

    Returns:
        The same shape.
    """
    return apply(_RingAttention, query, key, value, group)


class _RingAttention(Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, group: ContextGroup) -> Tensor:
        attention = BlockwiseAttention(query, group.own)
        block, arriving = torch.stack((key, value)), None
        for step in steps.forward(group.rank, group.size):
            match step:
                case PassBlock():
                    arriving = group.begin(block, step)
                case Attend():
                    attention.add(block[0], block[1], group.placement[step.block])
                    block, arriving = _next(block, arriving, group)
        found, log_sum = attention.result
        ctx.group = group
        ctx.save_for_backward(query, key, value, found, log_sum)
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        query, key, value, found, log_sum = ctx.saved_tensors
        group: ContextGroup = ctx.group
        attention = BlockwiseGradient(query, group.own, found, log_sum, gradient)
        block, arriving = torch.stack((key, value)), None
        block_gradient = torch.zeros_like(block)
        for step in steps.backward(group.rank, group.size):
            match step:
                case PassBlock():
                    arriving = group.begin(block, step)
                case Attend():
                    attention.add(block, group.placement[step.block], block_gradient)
                    block, arriving = _next(block, arriving, group)
                case PassGradient():
                    block_gradient = group.pass_gradient(block_gradient, step)
        return attention.query_gradient, block_gradient[0], block_gradient[1], None


def _next(block: Tensor, arriving: Arriving | None, group: ContextGroup) -> tuple[Tensor, None]:
    """Return the block that was under way, or this one if none was."""
    return (group.complete(arriving, block.device) if arriving else block), None
