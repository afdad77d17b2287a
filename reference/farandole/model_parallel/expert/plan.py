"""Which choices the experts accept, and how many tokens each rank sends to each: from counts, without any token.

Every rank counts how many of its tokens have expert e as their j-th choice, k·E numbers, and an all-gather brings all
counts to all ranks. From them each rank computes the same plan. The plan fixes three things:

    blocks     how many rows rank r sends to rank s, so that the all-to-all can have blocks of unequal lengths
    capacity   which choices an expert accepts, as if one process had all tokens
    shares     f of the balancing loss (`routing`)

An expert accepts at most C choices of a batch. First choices come before second ones, and among these, tokens in order
of ranks and of their places in them. What it does not accept is dropped: the token then passes the layer by the
residual connection, or with its other choice alone.

    C = ⌈factor·k·N/E⌉ for N tokens of all ranks

A factor of 1 is exactly enough for an even load. A factor of 0 stands for no limit (dropless): here an expert computes
with as many rows as it gets, without padding, so that this costs nothing but the wait for the busiest rank.

GShard and Switch apply C to a group of tokens, such as a rank's, and so need no counts of other ranks; which tokens
they drop depends on how the batch is divided. Cost of the counts: (P−1)·k·E·8 bytes per rank and layer.

Sources: Lepikhin et al., "GShard", 2020, section 2.2; Fedus, Zoph & Shazeer, "Switch transformers", 2021, section 2.2;
Gale et al., "MegaBlocks: efficient sparse training with mixture-of-experts", 2022, for dropless.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]


def divided(experts: int, ranks: int) -> list[range]:
    """Return each rank's experts: consecutive, their numbers differ by at most one; 0 for some if ranks are more."""
    ends = [rank * (experts // ranks) + min(rank, experts % ranks) for rank in range(ranks + 1)]
    return [range(ends[rank], ends[rank + 1]) for rank in range(ranks)]


def capacity_of(factor: float, tokens: int, k: int, experts: int) -> int | None:
    """Return the number of choices that an expert accepts at most; None: no limit.

    Args:
        factor: times an even share of all choices; 0 for no limit.
    """
    return max(1, ceil(round(factor * k * tokens / experts, 6))) if factor else None  # the product is rarely exact


@dataclass(frozen=True)
class Plan:
    """One batch's way through one layer.

    Attributes:
        placement: each rank's experts.
        chosen: tokens of rank r whose j-th choice is expert e, shape (ranks, k, experts).
        kept: those that the expert accepts.
    """

    placement: Sequence[range]
    chosen: Counts
    kept: Counts

    @classmethod
    def of(cls, placement: Sequence[range], chosen: Counts, capacity: int | None) -> Plan:
        """Return the plan for these counts.

        Args:
            capacity: choices that an expert accepts; None: all.
        """
        if capacity is None:
            return cls(placement, chosen, chosen)
        by_choice = chosen.transpose(1, 0, 2)  # first choices of all ranks, then second ones
        in_order = by_choice.reshape(-1, chosen.shape[2])
        before = in_order.cumsum(axis=0) - in_order
        kept = np.clip(capacity - before, 0, in_order).reshape(by_choice.shape).transpose(1, 0, 2)
        return cls(placement, chosen, kept)

    def among(self, ranks: Sequence[int]) -> Plan:
        """Return the plan of some ranks, which have all experts among them, with what is kept as of all ranks."""
        return Plan(self.placement, self.chosen[ranks], self.kept[ranks])

    @property
    def tokens(self) -> int:
        """Of all ranks."""
        return int(self.chosen[:, 0].sum())

    @property
    def shares(self) -> NDArray[np.float64]:
        """Return the share of each expert in all choices, accepted or not, (experts,)."""
        found: NDArray[np.float64] = self.chosen.sum((0, 1)) / self.chosen.sum()
        return found

    @property
    def dropped(self) -> int:
        """Choices that no expert has accepted."""
        return int(self.chosen.sum() - self.kept.sum())

    @property
    def by_expert(self) -> Counts:
        """Rows that rank r sends to expert e, (ranks, experts)."""
        found: Counts = self.kept.sum(1)
        return found

    @property
    def rows(self) -> Counts:
        """Rows that rank r sends to rank s, (ranks, ranks)."""
        return np.stack([self.by_expert[:, own.start : own.stop].sum(1) for own in self.placement], axis=1)

    def arriving(self, rank: int) -> Counts:
        """Return the rows that come from rank r for each expert of this rank, (ranks, own experts)."""
        own = self.placement[rank]
        return self.by_expert[:, own.start : own.stop]

    def grouped(self, rank: int) -> NDArray[np.intp]:
        """Return in which order this rank takes the rows that arrive, so that each expert's lie together.

        They arrive in order of ranks, and from each in order of experts.
        """
        arriving = self.arriving(rank)
        experts = np.tile(np.arange(arriving.shape[1]), len(arriving))
        return np.argsort(np.repeat(experts, arriving.ravel()), kind="stable")
