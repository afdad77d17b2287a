"""Lab 19: a mixture of experts with the experts divided among the ranks: route, dispatch, combine.

Complete what raises NotImplementedError, then: farandole lab check 19
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from farandole_tools.lab.communicator import LabCommunicator


def route(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the expert of each token, and the weight of that expert's answer.

    Args:
        scores: (tokens, experts). They may be large. They are not changed.

    Returns:
        The expert with the largest score; among equal scores, the one with the lowest number: (tokens,), integers.
        Its softmax probability, exp(score) divided by the sum of exp(score) over all experts: (tokens,).
    """
    raise NotImplementedError


def accept(choice: np.ndarray, before: np.ndarray, capacity: int) -> np.ndarray:
    """Return, for each of this rank's tokens, whether its expert accepts it: (tokens,), booleans.

    Each expert accepts the first `capacity` tokens that choose it, in rank order, and within a rank in the order
    of the tokens.

    Args:
        choice: each token's expert, (tokens,).
        before: for each expert, the number of tokens on lower ranks that choose it, (experts,).
    """
    raise NotImplementedError


def all_to_all(blocks: Sequence[np.ndarray], lengths: Sequence[int], comm: LabCommunicator) -> list[np.ndarray]:
    """Return the blocks that all ranks send to this one: block s of the result comes from rank s.

    Every rank calls this at the same time.

    Args:
        blocks: blocks[s] is for rank s; arrays (rows, …) with different numbers of rows, 0 for some, of one type. They
            are not changed.
        lengths: lengths[s] is the number of rows that come from rank s.
        comm: this rank's communicator: comm.rank is its number, comm.size the number of ranks.
            comm.exchange(send, to, receive, source) sends one array to a rank and at the same time receives another
            from a rank. comm.send(array, to) and comm.receive(array, source) do one of these, and wait for the other
            rank.
    """
    raise NotImplementedError


def mixture(
    x: np.ndarray,
    router: np.ndarray,
    experts: Sequence[Callable[[np.ndarray], np.ndarray]],
    capacity: int,
    comm: LabCommunicator,
) -> np.ndarray:
    """Return each token's answer: weight · expert(token) of its expert, or zeros if the expert does not accept it.

    Every rank calls this at the same time. All ranks have the same number of experts, m: expert e is number e % m on
    rank e // m.

    Args:
        x: this rank's tokens, (tokens, width); other ranks may have more or fewer. They are not changed.
        router: (width, experts of all ranks), the same on all ranks; x @ router are the scores.
        experts: the m experts of this rank, functions (rows, width) → (rows, width). Each is called once, with exactly
            the rows that it accepts; there may be 0 rows.
        capacity: the largest number of tokens that an expert accepts, over all ranks together.
    """
    raise NotImplementedError
