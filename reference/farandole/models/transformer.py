"""A small language model: a decoder-only transformer that predicts every next character.

Each block adds to its input what attention finds in the characters so far, and then what a
two-layer network makes of each place by itself:

    x ← x + attention(norm(x))        softmax(Q Kᵀ / √d, only the past) V, per head
    x ← x + feed_forward(norm(x))     W₂ gelu(W₁ x)

The layer norm comes first in each branch, so that the sum itself is never normalised (GPT-2's
order). No dropout: a split model must be comparable with the whole one. The model is an
`nn.Sequential`, so that it can be cut between any two of its layers.

Cost of a character, forward and backward: about 6 operations for each parameter that is in a
matrix, and 12·blocks·width·context for attention itself. Source: Vaswani et al., "Attention is all you
need", 2017; Radford et al., "Language models are unsupervised multitask learners", 2019.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from farandole.errors import UsageError
from farandole.models.core_attention import CoreAttention

HEAD_WIDTH = 16
EXPANSION = 4  # width of the feed-forward network, in widths of the model
# The next layer norm divides by it, and so multiplies gradients: with GPT-2's 0.02 plain SGD is unstable at 0.3.
EMBEDDING_SPREAD = 0.1


class Embedding(nn.Module):
    """A vector for each character plus one for its place; (samples, context) → (samples, context, width)."""

    def __init__(self, vocabulary: int, context: int, width: int) -> None:
        super().__init__()
        self.characters, self.places = (_table(rows, width) for rows in (vocabulary, context))
        for table in (self.characters, self.places):
            if not table.weight.is_meta:
                nn.init.normal_(table.weight, std=EMBEDDING_SPREAD)

    def forward(self, characters: Tensor) -> Tensor:
        places = torch.arange(characters.shape[1], device=characters.device)
        embedded: Tensor = self.characters(characters) + self.places(places)
        return embedded


def _table(rows: int, width: int) -> nn.Embedding:
    """A table; on the meta device without numbers drawn for it, for which torch would load its compiler, in 1 s."""
    here = torch.empty(rows, width)
    return nn.Embedding(rows, width, _weight=here) if here.is_meta else nn.Embedding(rows, width)


class Attention(nn.Module):
    """Every place looks back at all places before it, once per head."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.head_width = width // heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)
        self.core = CoreAttention()

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (self._by_head(project(x)) for project in (self.query, self.key, self.value))
        found = self.core(query, key, value)
        answer: Tensor = self.output(found.transpose(1, 2).flatten(2))
        return answer

    def _by_head(self, x: Tensor) -> Tensor:
        """(samples, context, width) → (samples, heads, context, head width)."""
        heads: Tensor = x.unflatten(2, (-1, self.head_width)).transpose(1, 2)
        return heads


class FeedForward(nn.Module):
    """Two linear layers with a bend between them, applied to each place by itself."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.expand = nn.Linear(width, EXPANSION * width)
        self.contract = nn.Linear(EXPANSION * width, width)

    def forward(self, x: Tensor) -> Tensor:
        contracted: Tensor = self.contract(gelu(self.expand(x)))
        return contracted


class Block(nn.Module):
    """Attention, then the feed-forward network; each adds to what comes in."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.feed_forward_norm = nn.LayerNorm(width)
        self.feed_forward = FeedForward(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        both: Tensor = x + self.feed_forward(self.feed_forward_norm(x))
        return both


class Head(nn.Module):
    """From a place's vector to one logit per character; (…, width) → (…, vocabulary)."""

    def __init__(self, width: int, vocabulary: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.logits = nn.Linear(width, vocabulary, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.logits(self.norm(x))
        return logits


def transformer(shape: Sequence[int], classes: int, hidden: int = 128, depth: int = 2) -> nn.Sequential:
    """`depth` blocks between an embedding and a head; (samples, context) → (samples, context, classes) logits.

    Args:
        shape: of a sample: its context, in characters.
        classes: how many characters there are.
        hidden: the model's width, in whole heads of 16.

    Raises:
        UsageError: a width of no whole number of heads.
    """
    (context,) = shape
    heads = heads_of(hidden)
    blocks = (Block(hidden, heads) for _ in range(depth))
    return nn.Sequential(Embedding(classes, context, hidden), *blocks, Head(hidden, classes))


def heads_of(width: int) -> int:
    """Return the number of heads of a model of this width.

    Raises:
        UsageError: no whole number of them.
    """
    if width % HEAD_WIDTH:
        below = width // HEAD_WIDTH * HEAD_WIDTH
        fitting = " or ".join(str(size) for size in (below, below + HEAD_WIDTH) if size)
        raise UsageError(f"--hidden {width}: the transformer's heads are {HEAD_WIDTH} wide; give {fitting}")
    return width // HEAD_WIDTH
