"""The order in which a rank uses its share: shuffled each epoch, and restorable to the sample.

All ranks must take the same number of steps per epoch, or the first collective without partner
waits for ever. So each rank cuts its share into that many batches, whose sizes differ by at most
one (`shares.equal_shares` once more): every sample is used exactly once per epoch, whatever the
shares, and a rank with a larger share has larger batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from farandole.errors import UsageError


def steps_per_epoch(samples: int, batch: int) -> int:
    """Steps in which `samples`, the total over all ranks, are used up, `batch` at a time.

    Raises:
        UsageError: a batch of less than one sample, or of more than there are.
    """
    if not 1 <= batch <= samples:
        raise UsageError(f"--batch {batch}: must be from 1 to the {samples} training samples")
    return -(-samples // batch)


def batch_size(share: int, steps: int, step: int) -> int:
    """Return how many of its `share` samples a rank uses in the given one of `steps` steps of an epoch."""
    step %= steps
    return share // steps + (step < share % steps)


def check_filled(shares: Sequence[int], batch: int, steps: int, on_every_rank: bool = False) -> None:
    """Refuse a batch so small that in some of the first `steps` steps no share would have a sample left.

    Args:
        on_every_rank: refuse one with which any share would have none.

    Raises:
        UsageError: saying what would fit.
    """
    epoch = steps_per_epoch(sum(shares), batch)
    first_empty = min(shares) if on_every_rank else max(shares)
    if min(steps, epoch) > first_empty:
        raise UsageError(
            f"--batch {batch}: {len(shares)} ranks share the samples, and would have none left for step {first_empty}; "
            f"give {len(shares)} or more"
        )


def samples_used(shares: Sequence[int], batch: int, steps: int) -> int:
    """Return the samples that all ranks use in `steps` steps, each counted as often as it is used."""
    epoch = steps_per_epoch(sum(shares), batch)
    return sum(batch_size(share, epoch, step) for step in range(steps) for share in shares)


class EpochSampler:
    """Yields, step after step, the indices into the rank's share that make up its next batch.

    Args:
        share: samples of this rank.
        steps: steps per epoch, the same on all ranks.
        seed, rank: together with the epoch's number they determine the order.
    """

    def __init__(self, share: int, steps: int, seed: int, rank: int) -> None:
        self.share, self.steps, self.seed, self.rank = share, steps, seed, rank
        self.epoch = 0
        self.step = 0
        self._order = self._shuffle()

    def __next__(self) -> NDArray[np.intp]:
        if self.step == self.steps:
            self.epoch, self.step = self.epoch + 1, 0
            self._order = self._shuffle()
        # The larger batches come first, so this many of the batches before had one sample more.
        start = self.step * (self.share // self.steps) + min(self.step, self.share % self.steps)
        size = batch_size(self.share, self.steps, self.step)
        self.step += 1
        return self._order[start : start + size]

    def __iter__(self) -> EpochSampler:
        return self

    def state(self) -> dict[str, int]:
        """Return the position: with it and the same share, the sequence goes on exactly where it was."""
        return {"seed": self.seed, "rank": self.rank, "epoch": self.epoch, "step": self.step}

    def restore(self, state: Mapping[str, int]) -> None:
        """Go to a position that `state` returned."""
        self.seed, self.rank = state["seed"], state["rank"]
        self.epoch, self.step = state["epoch"], state["step"]
        self._order = self._shuffle()

    def _shuffle(self) -> NDArray[np.intp]:
        # A fresh generator per epoch: any position can be reached without replaying the ones before.
        return np.random.default_rng([self.seed, self.rank, self.epoch]).permutation(self.share)
