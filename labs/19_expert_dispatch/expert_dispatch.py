"""Lab 19: a mixture of experts whose experts are divided over the ranks: route, dispatch, combine.

Complete what raises NotImplementedError, then: farandole lab check 19
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from farandole_tools.lab.communicator import LabCommunicator


def route(scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which expert each token goes to, and the weight of that expert's answer.

    Args:
        scores: (tokens, experts). They may be large. They stay as they are.

    Returns:
        The expert with the largest score, among equal scores the one with the lower number: (tokens,), integers.
        Its softmax probability, exp(score) over the sum of exp(scores) of all experts: (tokens,).
    """
    raise NotImplementedError


def accept(choice: np.ndarray, before: np.ndarray, capacity: int) -> np.ndarray:
    """Return which of this rank's tokens their experts accept: (tokens,), booleans.

    Each expert accepts the first `capacity` tokens that choose it, in order of the ranks, and on a rank in order of the
    tokens.

    Args:
        choice: each token's expert, (tokens,).
        before: how many tokens of lower ranks choose each expert, (experts,).
    """
    raise NotImplementedError


def all_to_all(blocks: Sequence[np.ndarray], lengths: Sequence[int], comm: LabCommunicator) -> list[np.ndarray]:
    """Return the blocks that all ranks have for this one: block s of the result comes from rank s.

    Every rank calls it at the same time as the others.

    Args:
        blocks: blocks[s] is for rank s; arrays (rows, …) with different numbers of rows, 0 for some, of one type. They
            stay as they are.
        lengths: lengths[s] is the number of rows that come from rank s.
        comm: this rank's connection to the others; comm.rank and comm.size say which it is, and of how many.
            comm.exchange(send, to, receive, source) sends an array to one rank and at the same time fills another from
            a rank; comm.send(array, to) and comm.receive(array, source) do one of these, and wait for the other side.
    """
    raise NotImplementedError


def mixture(
    x: np.ndarray,
    router: np.ndarray,
    experts: Sequence[Callable[[np.ndarray], np.ndarray]],
    capacity: int,
    comm: LabCommunicator,
) -> np.ndarray:
    """Return each token's answer: weight · expert(token) of its expert, or zeros if that does not accept it.

    Every rank calls it at the same time as the others. All ranks have equally many experts, m: expert e is number e % m
    on rank e // m.

    Args:
        x: this rank's tokens, (tokens, width); other ranks may have more or fewer. They stay as they are.
        router: (width, experts of all ranks), the same on all ranks; x @ router are the scores.
        experts: the m experts of this rank, functions (rows, width) → (rows, width). Each is called once, with all rows
            that it accepts, and no other; there may be 0 rows.
        capacity: tokens that an expert accepts at most, of all ranks together.
    """
    raise NotImplementedError
