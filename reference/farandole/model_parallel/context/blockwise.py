"""Attention from blocks of keys, one after the other: no row of the T × T scores is ever whole.

For one query, with scores s_j = q·k_j/√d, a softmax over all keys is a sum over blocks, each relative to its own

    L_b = log Σ_{j in b} exp(s_j)        o_b = Σ_{j in b} exp(s_j − L_b)·v_j

of which two are joined by

    L = log(exp L_a + exp L_b)           o = exp(L_a − L)·o_a + exp(L_b − L)·o_b

The order of the blocks does not matter but for rounding. Backward needs q, k, v, the answer o and L, and computes the
probabilities again, block by block: with p_j = exp(s_j − L), g the gradient of o, and δ = g·o

    dv_j += p_j·g      ds_j = p_j·(g·v_j − δ)      dq += ds_j·k_j/√d      dk_j += ds_j·q/√d

Memory: the scores of one part of the queries with one part of the keys. Source: Milakov & Gimelshein, "Online
normalizer calculation for softmax", 2018; Dao et al., "FlashAttention", 2022, appendix B for the backward pass.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from farandole.model_parallel.context.placement import Parts

Pair = tuple[slice, slice, Tensor | None]  # rows of the queries, rows of the keys, and which scores are left out


class BlockwiseAttention:
    """The attention of some queries, to which blocks of keys and values are added.

    Args:
        query: (samples, heads, positions, head width).
        own: the positions of the queries; a part of these and one of the keys are the same or have nothing in common.
    """

    def __init__(self, query: Tensor, own: Parts) -> None:
        samples, heads, positions, width = query.shape
        self.query, self.own = query, own
        self._found = query.new_zeros(samples, positions, heads, width).transpose(1, 2)  # flat by position, for free
        self._log_sum = query.new_full((samples, heads, positions, 1), -torch.inf)

    def add(self, key: Tensor, value: Tensor, theirs: Parts) -> None:
        """Add a block: (samples, heads, its positions, head width) of the positions `theirs`."""
        scale = self.query.shape[-1] ** -0.5
        for rows, columns, after in pairs(self.own, theirs, key.device):
            scores = scale * self.query[..., rows, :] @ key[..., columns, :].mT
            if after is not None:
                scores.masked_fill_(after, -torch.inf)
            here = scores.logsumexp(-1, keepdim=True)
            before = self._log_sum[..., rows, :]
            joined = torch.logaddexp(before, here)
            answer = (scores - joined).exp_() @ value[..., columns, :]
            self._found[..., rows, :] = (before - joined).exp_() * self._found[..., rows, :] + answer
            self._log_sum[..., rows, :] = joined

    @property
    def result(self) -> tuple[Tensor, Tensor]:
        """Return the answer, of the query's shape, and L, with 1 in place of the width."""
        return self._found, self._log_sum


class BlockwiseGradient:
    """The backward pass of `BlockwiseAttention`, in any order of the blocks.

    Args:
        query, own: as there.
        found, log_sum: its result.
        gradient: of `found`.

    Attributes:
        query_gradient: complete when all blocks have been added.
    """

    def __init__(self, query: Tensor, own: Parts, found: Tensor, log_sum: Tensor, gradient: Tensor) -> None:
        self.query, self.own, self.log_sum, self.gradient = query, own, log_sum, gradient
        self.query_gradient = torch.zeros_like(query)
        self._delta = (gradient * found).sum(-1, keepdim=True)

    def add(self, block: Tensor, theirs: Parts, block_gradient: Tensor) -> None:
        """Add what these queries contribute to the gradients of a block.

        Args:
            block, block_gradient: (2, samples, heads, its positions, head width): keys and values.
        """
        scale = self.query.shape[-1] ** -0.5
        (key, value), (key_gradient, value_gradient) = block, block_gradient
        for rows, columns, after in pairs(self.own, theirs, block.device):
            query, gradient = scale * self.query[..., rows, :], self.gradient[..., rows, :]
            scores = query @ key[..., columns, :].mT
            if after is not None:
                scores.masked_fill_(after, -torch.inf)
            softmax = scores.sub_(self.log_sum[..., rows, :]).exp_()
            value_gradient[..., columns, :] += softmax.mT @ gradient
            scores_gradient = softmax * (gradient @ value[..., columns, :].mT - self._delta[..., rows, :])
            self.query_gradient[..., rows, :] += scale * scores_gradient @ key[..., columns, :]
            key_gradient[..., columns, :] += scores_gradient.mT @ query


def pairs(own: Parts, theirs: Parts, device: torch.device) -> Iterator[Pair]:
    """Yield the parts of queries and keys that look at each other; parts of keys after all queries are left out."""
    row = 0
    for queries in own:
        column = 0
        for keys in theirs:
            if keys.start < queries.stop:
                rows, columns = slice(row, row + len(queries)), slice(column, column + len(keys))
                yield rows, columns, _after(queries, keys, device) if keys.stop > queries.start + 1 else None
            column += len(keys)
        row += len(queries)


def _after(queries: range, keys: range, device: torch.device) -> Tensor:
    """Return which keys are after which queries: (queries, keys)."""
    query, key = (torch.arange(part.start, part.stop, device=device) for part in (queries, keys))
    return key > query.unsqueeze(1)
