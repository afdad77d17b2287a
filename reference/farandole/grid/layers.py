"""The language model's layers over three axes at once: each divided by tensor, its part by context and expert.

    layer        tensor                              context                                expert
    embedding    characters by vocabulary            places of this rank's positions
    attention    queries, keys, values by heads      the ring, of the heads of this rank
    network      middle numbers                      (each position by itself)              the experts, whose rows come
                                                                                            from other ranks
    head         logits by vocabulary                (each position by itself)

The three do not know of each other. Ring attention takes as many heads as there are; and an expert is a pair of divided
matrices, to which all ranks of a tensor line bring the same rows, since their routers have the same inputs, bit by bit.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from farandole.errors import UsageError
from farandole.model_parallel.context.exchange import ContextGroup
from farandole.model_parallel.context.split import ContextAttention, ContextEmbedding
from farandole.model_parallel.expert.model import MixtureBlock
from farandole.model_parallel.tensor.exchange import TensorGroup, copy_to_parts
from farandole.model_parallel.tensor.transformer import (
    ParallelAttention,
    ParallelEmbedding,
    ParallelFeedForward,
    ParallelHead,
)
from farandole.models.transformer import Attention, Block, Embedding, FeedForward, Head


@dataclass(frozen=True)
class Groups:
    """The ranks that share a layer with this one, by axis."""

    tensor: TensorGroup
    context: ContextGroup


class ParallelContextAttention(ContextAttention):
    """Some of the heads, at some of the positions: (samples, own positions, width) → the same shape."""

    def __init__(self, whole: ParallelAttention, groups: Groups) -> None:
        super().__init__(whole, groups.context, "ring")
        self.tensor = groups.tensor

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(copy_to_parts(x, self.tensor))


class GridBlock(Block):
    """(samples, own positions, width) → the same shape, the same on all ranks of a tensor line."""

    def __init__(self, whole: Block, groups: Groups) -> None:
        nn.Module.__init__(self)
        self.attention_norm, self.feed_forward_norm = whole.attention_norm, whole.feed_forward_norm
        self.attention = _attention(whole.attention, groups)
        self.feed_forward = ParallelFeedForward(whole.feed_forward, groups.tensor)


class GridMixtureBlock(MixtureBlock):
    """The same, with a mixture, whose experts tensor ranks divide."""

    def __init__(self, whole: MixtureBlock, groups: Groups) -> None:
        super().__init__(whole, whole.mixture)
        self.attention = _attention(whole.attention, groups)
        experts = [expert for expert in self.mixture.experts if isinstance(expert, FeedForward)]
        self.mixture.experts = nn.ModuleList(ParallelFeedForward(expert, groups.tensor) for expert in experts)


def divided(layer: nn.Module, groups: Groups) -> nn.Module:
    """Return this rank's part of a layer, of which it takes what it needs.

    Args:
        layer: the same on all ranks, but for the experts of a mixture, of which it has this rank's only.

    Raises:
        UsageError: the model is no transformer; or more ranks than heads, symbols, … to divide.
    """
    match layer:
        case Embedding():
            part = ParallelEmbedding(layer, groups.tensor) if groups.tensor.size > 1 else layer
            return ContextEmbedding(part, groups.context) if groups.context.size > 1 else part
        case MixtureBlock():
            return GridMixtureBlock(layer, groups)
        case Block():
            return GridBlock(layer, groups)
        case Head():
            return ParallelHead(layer, groups.tensor)
    raise UsageError("the grid divides the layers of a transformer: give --model transformer --data pydoc")


def _attention(whole: Attention, groups: Groups) -> Attention:
    attention = ParallelAttention(whole, groups.tensor)
    return ParallelContextAttention(attention, groups) if groups.context.size > 1 else attention
