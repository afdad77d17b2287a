"""The project's own ring attention, in this lab's form: blockwise.py and ring_attention.py in model_parallel/context.

There the following block is received while attention is computed, a zig-zag balances the work, and the backward pass is
written out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from farandole_tools.lab.communicator import LabCommunicator


def attend(query: np.ndarray, key: np.ndarray, value: np.ndarray, ahead: int) -> tuple[np.ndarray, np.ndarray]:
    scores = query @ key.T / np.sqrt(query.shape[1])
    scores[np.arange(len(key)) > np.arange(len(query))[:, None] + ahead] = -np.inf
    largest = scores.max(axis=1, keepdims=True)
    largest[np.isinf(largest)] = 0
    scores -= largest
    weights = np.exp(scores, out=scores)
    total = weights.sum(axis=1, keepdims=True)
    log_sum = np.full(len(query), -np.inf)
    np.log(total[:, 0], out=log_sum, where=total[:, 0] > 0)
    answer = weights @ value / np.where(total > 0, total, 1)
    return answer, log_sum + largest[:, 0]


def join(
    answer: np.ndarray, log_sum: np.ndarray, other_answer: np.ndarray, other_log_sum: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    joined = np.logaddexp(log_sum, other_log_sum)
    reference = np.where(np.isinf(joined), 0, joined)
    share, other_share = np.exp(log_sum - reference), np.exp(other_log_sum - reference)
    return share[:, None] * answer + other_share[:, None] * other_answer, joined


def ring_attention(query: np.ndarray, key: np.ndarray, value: np.ndarray, comm: LabCommunicator) -> np.ndarray:
    right, left = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    block = np.stack((key, value))
    answer, log_sum = attend(query, block[0], block[1], 0)
    for step in range(1, comm.size):
        arriving = np.empty_like(block)
        comm.exchange(block, right, arriving, left)
        block = arriving
        owner = (comm.rank - step) % comm.size
        ahead = (comm.rank - owner) * len(query)
        answer, log_sum = join(answer, log_sum, *attend(query, block[0], block[1], ahead))
    return answer
