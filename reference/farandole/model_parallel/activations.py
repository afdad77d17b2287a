"""The bytes that a transformer's layers keep of one position, from its forward to its backward pass.

A block of width h, with a heads, sequences of s, in numbers of 2 bytes, as Megatron-LM computes it:

    every tensor rank      10h     inputs of both norms and of both branches (8h), two dropout masks (2h)
    1/t on each            24h     queries, keys, values, what attention found (8h), both sides of the bend (16h)
    1/t on each            5as     attention itself: the softmax, its dropout mask, the softmax after dropout

    t tensor ranks                    h(10 + 24/t + 5as/(ht))
    and the sequence divided          h/t·(34 + 5as/h)
    attention computed again          5as/(ht) less, "selective recomputation"
    the block computed again          2h, its inputs only, "full recomputation"

The models here have no dropout, and fused attention, which computes its square of positions again and keeps one number
per head: 4h + 12h/t + a/t numbers (`footprint`, which adds the norms' means and deviations). Source: Korthikanti et
al., "Reducing activation recomputation in large transformer models", 2022, sections 4 and 5, table 2; per position
where the paper has s·b positions.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kept:
    """Bytes of one position.

    Attributes:
        whole: what every tensor rank keeps, of its part of the positions where they divide the sequence, too.
        divided: what the tensor ranks divide by heads and columns.
        attention: what attention itself keeps, divided by heads.
    """

    whole: float
    divided: float
    attention: float = 0.0

    def on_rank(self, tensor: int = 1, *, sequence: bool = False) -> float:
        """Return the bytes of a position on one of `tensor` ranks, on average over the positions.

        Args:
            sequence: the tensor ranks divide the sequence, too.
        """
        return self.whole / (tensor if sequence else 1) + (self.divided + self.attention) / tensor


def block(
    width: int, heads: int, context: int, itemsize: int = 2, *, fused: bool = False, dropout: bool = True
) -> Kept:
    """Return what a block keeps, its inputs included.

    Args:
        context: positions that a position's attention compares with.
        itemsize: bytes of a number.
        fused: attention keeps one number per head, of 4 bytes or more, and no square of positions.
        dropout: after attention, after its softmax, and after the feed-forward network; a mask takes a byte.
    """
    square = heads * context * (itemsize + (1 + itemsize if dropout else 0))
    attention = heads * max(4, itemsize) if fused else square
    return Kept((4 * itemsize + 2 * dropout) * width, 12 * itemsize * width, attention)


def head(width: int, vocabulary: int, itemsize: int = 2) -> Kept:
    """Return what the last norm, the logits' layer and the loss keep; the loss's softmax has 4 bytes or more."""
    return Kept(2 * itemsize * width, max(4, itemsize) * vocabulary)
