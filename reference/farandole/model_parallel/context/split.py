"""The language model with its sequence divided: two of its layers change, and share the unsplit ones' parameters.

    embedding      a position's vector is that of its place in the whole sequence, not in this rank's part
    attention      looks at all ranks' keys and values, by ``ring_attention`` or ``ulysses``

Everything else computes each position by itself and stays as it is. A rank's loss is the mean over its positions; times
their share of the sequence, the losses of all ranks add up to the mean over the whole, and so do the gradients.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from farandole.errors import UsageError
from farandole.model_parallel.context.exchange import ContextGroup
from farandole.model_parallel.context.placement import length
from farandole.model_parallel.context.ring_attention import ring_attention
from farandole.model_parallel.context.ulysses import ulysses_attention
from farandole.models.transformer import Attention, Block, Embedding

ATTENTIONS: dict[str, Callable[[Tensor, Tensor, Tensor, ContextGroup], Tensor]] = {
    "ring": ring_attention,
    "ulysses": ulysses_attention,
}


class ContextEmbedding(Embedding):
    """(samples, own positions) → (samples, own positions, width)."""

    def __init__(self, whole: Embedding, group: ContextGroup) -> None:
        nn.Module.__init__(self)
        self.characters, self.places = whole.characters, whole.places
        self.group = group

    def forward(self, characters: Tensor) -> Tensor:
        embedded: Tensor = self.characters(characters) + self.places(self.group.positions(characters.device))
        return embedded


class ContextAttention(Attention):
    """Every position of this rank looks back at all positions before it, wherever they are."""

    def __init__(self, whole: Attention, group: ContextGroup, attention: str) -> None:
        nn.Module.__init__(self)
        self.head_width, self.group, self.attention = whole.head_width, group, ATTENTIONS[attention]
        self.query, self.key, self.value, self.output = whole.query, whole.key, whole.value, whole.output

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (self._by_head(project(x)) for project in (self.query, self.key, self.value))
        found = self.attention(query, key, value, self.group)
        answer: Tensor = self.output(found.transpose(1, 2).flatten(2))
        return answer


class ContextBlock(Block):
    """(samples, own positions, width) → the same shape."""

    def __init__(self, whole: Block, group: ContextGroup, attention: str) -> None:
        nn.Module.__init__(self)
        self.attention_norm, self.feed_forward_norm = whole.attention_norm, whole.feed_forward_norm
        self.attention = ContextAttention(whole.attention, group, attention)
        self.feed_forward = whole.feed_forward


def split_model(model: nn.Sequential, group: ContextGroup, attention: str) -> nn.Sequential:
    """Return a model for this rank's positions, with the parameters of `model` itself.

    Args:
        attention: a name in `ATTENTIONS`.

    Raises:
        UsageError: as `context_of`.
    """
    context_of(model)
    layers: list[nn.Module] = []
    for layer in model:
        match layer:
            case Embedding():
                layers.append(ContextEmbedding(layer, group))
            case Block():
                layers.append(ContextBlock(layer, group, attention))
            case _:
                layers.append(layer)
    return nn.Sequential(*layers)


def share(group: ContextGroup) -> float:
    """Return this rank's share of the positions."""
    return length(group.own) / sum(map(length, group.placement))


def context_of(model: nn.Sequential) -> int:
    """Return the number of positions of a sequence.

    Raises:
        UsageError: the model reads no sequences.
    """
    if not isinstance(model[0], Embedding):
        raise UsageError("the context split divides sequences: give --model transformer --data pydoc")
    return model[0].places.num_embeddings
