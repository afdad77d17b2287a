"""Ring attention as a schedule: which block a rank attends to when, and what it sends meanwhile.

Queries stay. In step t rank r has the block of rank r − t and attends to it. At the same time it sends the block on to
rank r + 1 and receives that of rank r − t − 1. Backward goes around once more. Each block now takes its gradient along,
to which every rank adds its part; the gradient makes one hop more and is then where its block came from.

    P = 3      step 0    step 1    step 2
    rank 0     block 0   block 2   block 1
    rank 1     block 1   block 0   block 2
    rank 2     block 2   block 1   block 0

Cost for n bytes of keys and values of all positions: (P−1)α + (P−1)/P·nβ forward, hidden where a step's attention takes
as long as its message; backward as much for the blocks, and Pα + nβ for their gradients.
Source: Liu, Zaharia & Abbeel, "Ring attention with blockwise transformers for near-infinite context", 2023.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Attend:
    """Attend to the block that is here; backward: add to its gradient."""

    block: int


@dataclass(frozen=True, slots=True)
class PassBlock:
    """Begin to send the block that is here and to receive the next; it replaces this one after the next `Attend`."""

    block: int
    to: int
    following: int
    source: int


@dataclass(frozen=True, slots=True)
class PassGradient:
    """Send the gradient of the block that was here, and receive that of the next."""

    block: int
    to: int
    following: int
    source: int


Step = Attend | PassBlock | PassGradient


def forward(rank: int, size: int) -> Iterator[Attend | PassBlock]:
    """Yield one rank's steps of a forward pass."""
    for step in range(size):
        block, following = (rank - step) % size, (rank - step - 1) % size
        if step < size - 1:
            yield PassBlock(block, (rank + 1) % size, following, (rank - 1) % size)
        yield Attend(block)


def backward(rank: int, size: int) -> Iterator[Step]:
    """Yield one rank's steps of a backward pass, after which it has the gradient of the block it began with."""
    for step in range(size):
        block, following = (rank - step) % size, (rank - step - 1) % size
        if step < size - 1:
            yield PassBlock(block, (rank + 1) % size, following, (rank - 1) % size)
        yield Attend(block)
        if size > 1:
            yield PassGradient(block, (rank + 1) % size, following, (rank - 1) % size)
