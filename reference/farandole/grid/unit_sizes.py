"""The parameters of each layer's units (`sharded.plan`) on one rank, before shard ranks divide them.

For width w, of which this rank's heads have a and the middle of its networks m, v of the vocabulary, T positions, and
e of E experts:

    embedding        (v + T)·w
    block            4w + (4a·w + 3a + w) + (2m·w + m + w)         norms, attention, network: one unit
    … of experts     2w, 2w, 4a·w + 3a + w, E·w                    two norms, attention, router
                     2m·w + m + w, e times                         each expert is a unit
    head             2w + v·w
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class UnitSize:
    """A unit's number of parameters."""

    numel: int
    is_expert: bool = False


def embedding(width: int, vocabulary: int, positions: int) -> UnitSize:
    """Return the unit of the embeddings of characters and places."""
    return UnitSize((vocabulary + positions) * width)


def block(width: int, heads: int, middle: int, experts: int = 0, own: int = 0) -> Iterator[UnitSize]:
    """Yield the units of a block.

    Args:
        heads: numbers of a position's vector that belong to this rank's heads.
        experts, own: of a mixture in place of the network, and how many of them this rank has; 0: a network.
    """
    norm, attention, network = 2 * width, 4 * heads * width + 3 * heads + width, 2 * middle * width + middle + width
    if experts:
        yield from (UnitSize(numel) for numel in (norm, norm, attention, experts * width))
        yield from (UnitSize(network, is_expert=True) for _ in range(own))
    else:
        yield UnitSize(2 * norm + attention + network)


def head(width: int, vocabulary: int) -> UnitSize:
    """Return the unit of the last norm and the logits."""
    return UnitSize(2 * width + vocabulary * width)
