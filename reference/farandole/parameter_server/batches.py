"""One worker's batches of its shard, and its share of each whole batch."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import numpy as np
import torch
from numpy.typing import NDArray

from farandole.data.read_ahead import ahead
from farandole.data.sampler import EpochSampler, batch_size, steps_per_epoch
from farandole.data.samples import Reader, Samples


class Batches:
    """One worker's batches, and each one's share of the whole batch.

    Args:
        shares: samples of each worker.
        own: which of them is this one.
        batch: samples of a whole batch.
    """

    def __init__(self, shares: Sequence[int], own: int, batch: int, seed: int) -> None:
        self.shares = shares
        self.epoch = steps_per_epoch(sum(shares), batch)
        self.sampler = EpochSampler(shares[own], self.epoch, seed, own)
        self.taken = 0

    def __next__(self) -> tuple[NDArray[np.intp], float]:
        """Return rows of the shard, and n_r / N."""
        rows = next(self.sampler)
        whole = sum(batch_size(share, self.epoch, self.taken) for share in self.shares)
        self.taken += 1
        return rows, len(rows) / whole

    def read_by(self, samples: Samples, device: torch.device) -> Reader:
        """Return a reader of the shard, whose workers, if it has any, begin with the next batch."""
        sampler = copy(self.sampler)
        return ahead(samples.on(device), sampler, sampler.seed, sampler.rank)
