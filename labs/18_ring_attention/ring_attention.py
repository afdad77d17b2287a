"""Lab 18: attention over a sequence divided among the ranks, with blocks of keys and values passed around a ring.

Complete what raises NotImplementedError, then: farandole lab check 18
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from farandole_tools.lab.communicator import LabCommunicator


def attend(query: np.ndarray, key: np.ndarray, value: np.ndarray, ahead: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the attention of some queries to one block of keys, and the weight of the block.

    The score of query i and key j is query[i]·key[j]/√width. Query i sees exactly the keys j <= i + ahead.

    Args:
        query, key, value: (queries, width), (keys, width), (keys, width). They are not changed.
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
    """Return the answers and L for two blocks together, from those that `attend` returns for each block.

    A query may have seen no key in either block. This causes no warning and no nan.
    """
    raise NotImplementedError


def ring_attention(query: np.ndarray, key: np.ndarray, value: np.ndarray, comm: LabCommunicator) -> np.ndarray:
    """Return the answers of this rank's queries, (n, width). A query sees all keys up to its own position.

    Every rank calls this at the same time. Rank r has the positions r·n to (r + 1)·n − 1.

    Args:
        query, key, value: (n, width), for this rank's positions; n is the same on all ranks. They are not changed.
        comm: this rank's communicator: comm.rank is its number, comm.size the number of ranks.
            comm.exchange(send, to, receive, source) sends one array to a rank and at the same time receives another
            from a rank. The arrays are contiguous and do not overlap.
    """
    raise NotImplementedError
