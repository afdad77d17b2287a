"""Lab 18: attention to a sequence that is divided over the ranks, with blocks of keys and values that go around a ring.

Complete what raises NotImplementedError, then: farandole lab check 18
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from farandole_tools.lab.communicator import LabCommunicator


def attend(query: np.ndarray, key: np.ndarray, value: np.ndarray, ahead: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the attention of some queries to one block of keys, and how much weight it has.

    The score of query i and key j is query[i]·key[j]/√width. Query i sees the keys j with j <= i + ahead, and no other.

    Args:
        query, key, value: (queries, width), (keys, width), (keys, width). They stay as they are.
        ahead: position of the first query minus position of the first key in the sequence; it may be negative.

    Returns:
        The answers, (queries, width): for each query the mean of the values that it sees, weighted by the softmax of
        its scores; 0 for a query that sees no key.
        L, (queries,): the logarithm of the sum of exp(score) over the keys that the query sees; -np.inf if it sees
        none.
    """
    raise NotImplementedError


def join(
    answer: np.ndarray, log_sum: np.ndarray, other_answer: np.ndarray, other_log_sum: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the answers and L of two blocks together, from those of each, as `attend` returns them.

    No warning, and no nan: a query may have seen no key in either block.
    """
    raise NotImplementedError


def ring_attention(query: np.ndarray, key: np.ndarray, value: np.ndarray, comm: LabCommunicator) -> np.ndarray:
    """Return the answers of this rank's queries, (n, width). Every query sees all keys of the sequence up to its own.

    Every rank calls it at the same time as the others. Rank r has the positions r·n to (r + 1)·n − 1.

    Args:
        query, key, value: (n, width), of this rank's positions; n is the same on all ranks. They stay as they are.
        comm: this rank's connection to the others; comm.rank and comm.size say which it is, and of how many.
            comm.exchange(send, to, receive, source) sends an array to one rank and at the same time fills another from
            a rank. The arrays are contiguous and do not overlap.
    """
    raise NotImplementedError
