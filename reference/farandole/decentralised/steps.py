"""The vocabulary of mixing: what one rank sends, keeps and adds in a round; and what all ranks' steps come to.

    message of rank j    m_j = share_j · x_j                 the same to all whom it sends to
    rank i afterwards    x_i ← keep_i · x_i + Σ_j weight_ij · m_j        over the j that it hears

So who weighs can be the one that hears (D-PSGD: it knows all weights of its row) or the one that sends (push-sum: it
knows only how many it sends to). Pure, as the steps of collectives are: run over MPI by `exchange`, and in one process
here, on numbers or, to find the matrix W of x ← W·x, on the ranks themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[Any]


class StepError(AssertionError):
    """A message that nobody takes, or one that nobody sends; the text says between whom."""


@dataclass(frozen=True, slots=True)
class Mixing:
    """One rank's part of a round.

    Attributes:
        to: the ranks that are sent `share` times the own vector.
        sources: the ranks whose messages are added.
        share: by what the own vector is multiplied before it is sent.
        keep: how much of it stays here.
        weights: by what each of `sources`' messages is multiplied.
    """

    to: tuple[int, ...]
    sources: tuple[int, ...]
    share: float
    keep: float
    weights: tuple[float, ...]

    def __str__(self) -> str:
        heard = " + ".join(
            f"{weight:.3g} of rank {rank}'s" for rank, weight in zip(self.sources, self.weights, strict=True)
        )
        kept = f"keep {self.keep:.3g}" + (f", add {heard}" if heard else "")
        what = "it" if self.share == 1 else f"{self.share:.3g} of it"
        sent = f"send {what} to {', '.join(map(str, self.to))}; " if self.to else ""
        return sent + kept


def run(steps: Sequence[Mixing], vectors: Matrix) -> Matrix:
    """All ranks' vectors after a round.

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
    """W, by which the round multiplies the ranks' vectors: W_ij of rank j's is in rank i's afterwards."""
    return run(steps, np.eye(len(steps)))


def check_pairs(steps: Sequence[Mixing]) -> None:
    """Every message that is sent is taken by the one it is sent to, and the other way round.

    Then a round cannot deadlock: no message waits for another one.

    Raises:
        StepError: naming the two ranks.
    """
    sent = {(source, to) for source, step in enumerate(steps) for to in step.to}
    taken = {(source, to) for to, step in enumerate(steps) for source in step.sources}
    if lost := sent - taken:
        raise StepError("rank {} sends to rank {}, which does not listen".format(*min(lost)))
    if missing := taken - sent:
        raise StepError("rank {} sends nothing to rank {}, which waits for it".format(*min(missing)))


def messages(steps: Sequence[Mixing]) -> list[int]:
    """How many each rank sends in the round, each as long as its vector."""
    return [len(step.to) for step in steps]
