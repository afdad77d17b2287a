"""signSGD with majority vote: every rank sends the signs of its gradient, and receives the majority's.

    ballot      sign(g_r), one bit an entry
    verdict     sign(Σ_r sign(g_r)), one bit an entry
    w ← w − η·verdict

Entries are divided among the ranks as among P servers: rank j receives all ballots for part j, counts them, and sends
the verdict to all. So one bit per entry travels in each direction, whatever P. Every parameter moves by η in every
step, so --lr must be small. No magnitude counts: a rank that sends wrong signs, or a gradient a million times too long,
has one vote. An entry of 0 counts as +, as in `sign`. In a tie, which needs an even number of ranks, the counting rank
draws the sign at random, so that ties have no effect on average.

A sign bit cannot show that a gradient is not finite. So each message has one more byte that does (`non_finite`).

Cost: 2(P − 1)(⌈n/(8P)⌉ + 1) bytes leave each rank, in 2(P − 1) messages; no state is kept. Sources: Bernstein et al.,
"signSGD: compressed optimisation for non-convex problems", 2018; Bernstein et al., "signSGD with majority vote is
communication efficient and fault tolerant", 2019, which votes on the sign of each rank's momentum.
"""

from __future__ import annotations

from math import ceil

import numpy as np
from numpy.typing import NDArray

from farandole.compression.compressor import Payload, Use, Vector

Bits = NDArray[np.uint8]


class MajorityVote:
    """One rank's part in the vote: `ballots`, an exchange of one row with each rank, `count`, an all-gather, `decode`.

    Args:
        length: entries of the gradient.
        ranks: P.
        generator: this rank's own; it decides ties in the part that is counted here.
    """

    def __init__(self, length: int, ranks: int, generator: np.random.Generator) -> None:
        self.length, self.ranks, self.generator = length, ranks, generator
        self.part = ceil(length / (8 * ranks))  # bytes of signs in a message; one more: all finite?

    def nbytes(self) -> int:
        """Return the bytes that this rank sends in a step."""
        return 2 * (self.ranks - 1) * (self.part + 1)

    def ballots(self, vector: Vector) -> Bits:
        """Return this rank's signs, 1 for a negative one, shape (ranks, `part` + 1); row j is for rank j."""
        rows = np.zeros((self.ranks, self.part + 1), np.uint8)
        signs = np.packbits(vector < 0)
        whole = np.zeros(self.ranks * self.part, np.uint8)
        whole[: len(signs)] = signs
        rows[:, :-1] = whole.reshape(self.ranks, self.part)
        rows[:, -1] = not np.isfinite(vector).all()
        return rows

    def count(self, rows: Bits) -> Payload:
        """Return the verdict on this rank's part, from every rank's row for it, shape (ranks, `part` + 1)."""
        negative = np.unpackbits(rows[:, :-1], axis=1).sum(axis=0, dtype=np.int64)
        coins = self.generator.integers(0, 2, len(negative))
        verdict = np.where(2 * negative == self.ranks, coins, 2 * negative > self.ranks)
        return np.append(np.packbits(verdict.astype(bool)), rows[:, -1].max()).astype(np.uint8)

    def decode(self, verdicts: Bits) -> Vector:
        """Return +1 or −1 for each entry, from all verdicts in order; only NaN if a rank's gradient is not finite."""
        rows = verdicts.reshape(self.ranks, self.part + 1)
        if rows[:, -1].any():
            return np.full(self.length, np.nan, np.float32)
        negative = np.unpackbits(np.ascontiguousarray(rows[:, :-1]).reshape(-1), count=self.length)
        return np.float32(1) - 2 * negative.astype(np.float32)


def make(use: Use) -> MajorityVote:
    return MajorityVote(use.length, use.ranks, use.own)
