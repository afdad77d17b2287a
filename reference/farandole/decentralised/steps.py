"""The vocabulary of mixing: what one rank sends, keeps and adds in a round, and the result of all ranks' steps.

    message of rank j    m_j = share_j · x_j                             the same to all its destinations
    rank i afterwards    x_i ← keep_i · x_i + Σ_j weight_ij · m_j        over its sources j

The weights can be the receiver's (D-PSGD: it knows its row of W) or the sender's (push-sum: it knows only its number of
destinations). Pure, as the steps of collectives are: run over MPI by `exchange`, and in one process here, on vectors
or, to find the matrix W of x ← W·x, on unit vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[Any]


class StepError(AssertionError):
    """A message without a receiver or without a sender; the text names both ranks."""


@dataclass(frozen=True, slots=True)
class Mixing:
    """One rank's part of a round.

    Attributes:
        to: the ranks that are sent `share` times this rank's vector.
        sources: the ranks whose messages are added.
        share: factor of this rank's vector in its message.
        keep: factor of this rank's vector in the result.
        weights: factor of each source's message, in the order of `sources`.
    """

    to: tuple[int, ...]
    sources: tuple[int, ...]
    share: float
    keep: float
    weights: tuple[float, ...]

    def __str__(self) -> str:
        added = " + ".join(
            f"{weight:.3g} of rank {rank}'s" for rank, weight in zip(self.sources, self.weights, strict=True)
        )
        kept = f"keep {self.keep:.3g}" + (f", add {added}" if added else "")
        what = "it" if self.share == 1 else f"{self.share:.3g} of it"
        sent = f"send {what} to {', '.join(map(str, self.to))}; " if self.to else ""
        return sent + kept


def run(steps: Sequence[Mixing], vectors: Matrix) -> Matrix:
    """Return all ranks' vectors after a round.

    Args:
        steps: one a rank.
        vectors: one a row.

    Raises:
        StepError: the steps do not fit each other.
    """
    check_pairs(steps)
    after = np.empty_like(vectors)
    for rank, step in enumerate(steps):
        after[rank] = step.keep * vectors[rank]
        for source, weight in zip(step.sources, step.weights, strict=True):
            after[rank] += weight * (steps[source].share * vectors[source])
    return after


def matrix(steps: Sequence[Mixing]) -> Matrix:
    """Return W, by which the round multiplies the ranks' vectors: x_i ← Σ_j W_ij · x_j."""
    return run(steps, np.eye(len(steps)))


def check_pairs(steps: Sequence[Mixing]) -> None:
    """Check that every message is received by its destination, and that every source sends one.

    Then a round cannot deadlock: no message waits for another one.

    Raises:
        StepError: naming the two ranks.
    """
    sent = {(source, to) for source, step in enumerate(steps) for to in step.to}
    taken = {(source, to) for to, step in enumerate(steps) for source in step.sources}
    if lost := sent - taken:
        raise StepError("rank {} sends to rank {}, which receives nothing from it".format(*min(lost)))
    if missing := taken - sent:
        raise StepError("rank {} sends nothing to rank {}, which waits for it".format(*min(missing)))


def messages(steps: Sequence[Mixing]) -> list[int]:
    """Return the number of messages that each rank sends in the round, each as long as its vector."""
    return [len(step.to) for step in steps]
