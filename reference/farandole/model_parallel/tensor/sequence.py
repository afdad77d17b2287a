"""Sequence parallel: between two split layers each rank has its part of the positions, and not the whole.

A tensor split leaves layer norms and sums whole on every rank, and their activations with them. They look at each
position by itself, so they can be divided by positions. An all-reduce is a reduce-scatter and an all-gather; now the
first ends a pair of layers and the second begins the next:

    operator           forward                          backward
    gathered linear    all-gather x, then x·A           gather x again, for the gradient of A; reduce-scatter that of x
    scattered sum      reduce-scatter the parts         all-gather

The gathered x is not kept, so that nothing of a block stays whole: (16w + h + 4)/t numbers per character, where the
tensor split alone keeps 4w + (12w + h)/t + 4. Norms, the biases of row layers and the table of places are on all ranks
and see a part of the positions each, so their gradients have to be added up, once a step (`add_up_replicated`).

Cost per block, rank and batch of n bytes of activations: forward 4(P−1)/P·n, the bytes of the tensor split; backward
6(P−1)/P·n, half more, for x gathered again. Source: Korthikanti et al., "Reducing activation recomputation in large
transformer models", 2022, section 4.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import gelu, linear

from farandole.data.shares import slices
from farandole.model_parallel.tensor.division import divisions
from farandole.model_parallel.tensor.exchange import TensorGroup, apply
from farandole.model_parallel.tensor.linear import ColumnLinear, RowLinear
from farandole.model_parallel.tensor.transformer import (
    ParallelBlock,
    ParallelEmbedding,
    ParallelFeedForward,
    ParallelHead,
)
from farandole.models.transformer import Block, Head

POSITIONS = 1  # the axis of (samples, positions, width)


def gathered_linear(x: Tensor, layers: Sequence[ColumnLinear], context: int) -> tuple[Tensor, ...]:
    """Return what column layers make of all positions, from this rank's: (samples, context, share) of each layer.

    Args:
        x: (samples, own positions, width).
        layers: of the same group; x is gathered once for all of them.
        context: positions of a whole sequence.
    """
    group = layers[0].group
    parameters = [each for layer in layers for each in (layer.weight, layer.bias)]
    applied = _GatheredLinear.apply(x, group, shares_of(context, group), *parameters)  # type: ignore[no-untyped-call]
    outputs: tuple[Tensor, ...] = applied
    return outputs


def scattered_sum(part: Tensor, group: TensorGroup) -> Tensor:
    """Return Σ of the ranks' parts, at this rank's positions: (samples, context, width) → (samples, own, width)."""
    return apply(_ScatteredSum, part, group, shares_of(part.shape[POSITIONS], group))


def shares_of(context: int, group: TensorGroup) -> list[int]:
    """Return how many positions each rank has.

    Raises:
        UsageError: more ranks than positions.
    """
    return group.shares(context, "positions of a sequence")


def add_up_replicated(modules: Iterable[nn.Module], group: TensorGroup) -> None:
    """Add up over the ranks the gradients of all parameters that are not divided. Collective.

    Each rank has computed them from its positions. Cost: one all-reduce of these parameters.
    """
    gradients = []
    for module in modules:
        divided = divisions(module)
        gradients += [each.grad for name, each in module.named_parameters() if name not in divided]
    known = [each for each in gradients if each is not None]
    summed = group.sum(torch.cat([each.reshape(-1) for each in known]))
    for gradient, total in zip(known, summed.split([each.numel() for each in known]), strict=True):
        gradient.copy_(total.view_as(gradient))


class SequenceEmbedding(ParallelEmbedding):
    """(samples, context), the same on all ranks → (samples, own positions, width)."""

    def forward(self, characters: Tensor) -> Tensor:
        group, context = self.characters.group, characters.shape[1]
        own = slices(shares_of(context, group))[group.rank]
        places = torch.arange(own.start, own.stop, device=characters.device)
        embedded: Tensor = scattered_sum(self.characters.part(characters), group) + self.places(places)
        return embedded


class SequenceBlock(ParallelBlock):
    """(samples, own positions, width) → the same shape.

    Args:
        whole: the layer to divide, the same on all ranks; it is copied from and not kept.
        context: positions of a whole sequence.
    """

    feed_forward: ParallelFeedForward

    def __init__(self, whole: Block, group: TensorGroup, context: int) -> None:
        super().__init__(whole, group)
        self.context = context

    def forward(self, x: Tensor) -> Tensor:
        x = x + self._attend(self.attention_norm(x))
        (middle,) = gathered_linear(self.feed_forward_norm(x), [self.feed_forward.expand], self.context)
        return x + _rows(gelu(middle), self.feed_forward.contract)

    def _attend(self, x: Tensor) -> Tensor:
        attention = self.attention
        columns = gathered_linear(x, [attention.query, attention.key, attention.value], self.context)
        query, key, value = (attention._by_head(each) for each in columns)
        found = attention.core(query, key, value)
        return _rows(found.transpose(1, 2).flatten(2), attention.output)


class SequenceHead(ParallelHead):
    """(samples, own positions, width) → (samples, context, share): logits of this rank's part of the vocabulary."""

    def __init__(self, whole: Head, group: TensorGroup, context: int) -> None:
        super().__init__(whole, group)
        self.context = context

    def forward(self, x: Tensor) -> Tensor:
        (logits,) = gathered_linear(self.norm(x), [self.logits], self.context)
        return logits


def _rows(x: Tensor, layer: RowLinear) -> Tensor:
    """Return a row layer's output at this rank's positions."""
    summed = scattered_sum(linear(x, layer.weight), layer.group)
    return summed if layer.bias is None else summed + layer.bias


class _GatheredLinear(Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, group: TensorGroup, shares: Sequence[int], *parameters: Tensor | None
    ) -> tuple[Tensor, ...]:
        weights, biases = parameters[::2], parameters[1::2]
        ctx.group, ctx.shares, ctx.biased = group, shares, [bias is not None for bias in biases]
        ctx.save_for_backward(x, *weights)
        everywhere = group.gather(x, shares, POSITIONS)
        layers = zip(weights, biases, strict=True)
        return tuple(linear(everywhere, weight, bias) for weight, bias in layers if weight is not None)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        x, *weights = ctx.saved_tensors
        everywhere = ctx.group.gather(x, ctx.shares, POSITIONS).flatten(0, 1)
        of_x = sum(gradient @ weight for gradient, weight in zip(gradients, weights, strict=True))
        of_parameters: list[Tensor | None] = []
        for gradient, biased in zip(gradients, ctx.biased, strict=True):
            rows = gradient.flatten(0, 1)
            of_parameters += [rows.T @ everywhere, rows.sum(0) if biased else None]
        return ctx.group.reduce_scatter(of_x, ctx.shares, POSITIONS), None, None, *of_parameters


class _ScatteredSum(Function):
    @staticmethod
    def forward(ctx: Any, part: Tensor, group: TensorGroup, shares: Sequence[int]) -> Tensor:
        ctx.group, ctx.shares = group, shares
        return group.reduce_scatter(part, shares, POSITIONS)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return ctx.group.gather(gradient, ctx.shares, POSITIONS), None, None
