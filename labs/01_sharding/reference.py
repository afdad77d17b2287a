"""The project's own sharding, in this lab's form: farandole/data/shares.py and data/sampler.py."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from farandole.data.sampler import EpochSampler
from farandole.data.shares import equal_shares, slices


def shares(samples: int, ranks: int) -> list[int]:
    return equal_shares(samples, ranks)


def my_rows(samples: int, rank: int, ranks: int) -> range:
    part = slices(equal_shares(samples, ranks))[rank]
    return range(part.start, part.stop)


def batches(samples: int, rank: int, ranks: int, steps: int, seed: int, epoch: int, start: int = 0) -> list[np.ndarray]:
    rows = my_rows(samples, rank, ranks)
    sampler = EpochSampler(len(rows), steps, seed, rank)
    sampler.restore({"seed": seed, "rank": rank, "epoch": epoch, "step": start})
    return [rows.start + next(sampler) for _ in range(start, steps)]


def mean_gradient(gradients: Sequence[np.ndarray], counts: Sequence[int]) -> np.ndarray:
    return np.average(gradients, axis=0, weights=counts)
