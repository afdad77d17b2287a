"""The language model's layers, each divided over the ranks (the unsplit ones: ``models/transformer``).

What a layer computes stays as it is; only its linear layers are exchanged for parts:

    attention      query, key, value by columns, a rank's columns being its heads; output by rows
    feed forward   expand by columns, contract by rows
    embedding      the characters by vocabulary; the table of places replicated
    head           by vocabulary; the logits stay divided, ``cross_entropy`` takes them so
    layer norms    replicated

Heads look at each other as little as the middle numbers of the feed-forward network, so both
branches of a block need nothing but an all-reduce at their end, and one at their beginning on the
way back. Cost per block, rank and batch, with n = 4·samples·context·width bytes of float32:
2·2(P−1)/P·n forward and as much backward, in 2 + 2 all-reduces.
Source: Shoeybi et al., "Megatron-LM", 2019.
"""

from __future__ import annotations

from copy import deepcopy

from torch import Tensor, nn

from farandole.model_parallel.tensor.embedding import VocabularyEmbedding
from farandole.model_parallel.tensor.exchange import TensorGroup, copy_to_parts
from farandole.model_parallel.tensor.linear import ColumnLinear, RowLinear
from farandole.models.transformer import Attention, Block, Embedding, FeedForward, Head

# Each class below takes the layer to divide, the same on all ranks; copies from it and does not keep it.


class ParallelEmbedding(Embedding):
    """(samples, context) → (samples, context, width), whole on every rank."""

    characters: VocabularyEmbedding

    def __init__(self, whole: Embedding, group: TensorGroup) -> None:
        nn.Module.__init__(self)
        self.characters = VocabularyEmbedding(whole.characters, group)
        self.places = deepcopy(whole.places)


class ParallelAttention(Attention):
    """Every rank has some of the heads.

    Raises:
        UsageError: more ranks than heads.
    """

    query: ColumnLinear
    key: ColumnLinear
    value: ColumnLinear
    output: RowLinear

    def __init__(self, whole: Attention, group: TensorGroup) -> None:
        nn.Module.__init__(self)
        self.group = group
        self.head_width = whole.head_width
        heads = group.shares(whole.query.out_features // whole.head_width, "heads of attention")
        columns = [self.head_width * share for share in heads]
        self.query, self.key, self.value = (
            ColumnLinear(projection, group, columns, entered=True)
            for projection in (whole.query, whole.key, whole.value)
        )
        self.output = RowLinear(whole.output, group, columns)
        self.core = deepcopy(whole.core)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(copy_to_parts(x, self.group))  # once for all three: one all-reduce backward


class ParallelFeedForward(FeedForward):
    """Every rank has some of the numbers in the middle."""

    expand: ColumnLinear
    contract: RowLinear

    def __init__(self, whole: FeedForward, group: TensorGroup) -> None:
        nn.Module.__init__(self)
        self.expand = ColumnLinear(whole.expand, group)
        self.contract = RowLinear(whole.contract, group)


class ParallelBlock(Block):
    """(samples, context, width) → the same shape, both whole on every rank."""

    attention: ParallelAttention

    def __init__(self, whole: Block, group: TensorGroup) -> None:
        nn.Module.__init__(self)
        self.attention_norm = deepcopy(whole.attention_norm)
        self.attention = ParallelAttention(whole.attention, group)
        self.feed_forward_norm = deepcopy(whole.feed_forward_norm)
        self.feed_forward = ParallelFeedForward(whole.feed_forward, group)


class ParallelHead(Head):
    """(…, width), whole on every rank → (…, share): the logits of this rank's part of the vocabulary."""

    logits: ColumnLinear

    def __init__(self, whole: Head, group: TensorGroup) -> None:
        nn.Module.__init__(self)
        self.norm = deepcopy(whole.norm)
        self.logits = ColumnLinear(whole.logits, group)
