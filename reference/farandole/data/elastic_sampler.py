"""The batches of a training whose ranks may change.

The samples are cut once, into as many shards as there were ranks at first, and each shard keeps its order
(`sampler.EpochSampler`). A step's batch has samples of all shards, whichever ranks are present. So every sample is used
exactly once per epoch, in a step that does not depend on the ranks. The parts of the batch are assigned anew at each
step: with one rank per shard each rank computes its own shard's part, as in any data-parallel training; otherwise the
ranks cut the batch into equal parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from farandole.data.sampler import EpochSampler, steps_per_epoch

Rows = NDArray[np.intp]


class ElasticSampler:
    """Yields, step after step, for each shard the rows of the whole set that are in the batch.

    Args:
        shares: the size of each shard; shard 0 is the first rows of the set, and so on.
        batch: samples per step, over all shards.
        seed: with the shard's number and the epoch's, what the order is drawn from.
    """

    def __init__(self, shares: Sequence[int], batch: int, seed: int) -> None:
        self.shares, self.seed = list(shares), seed
        self.steps = steps_per_epoch(sum(shares), batch)
        self._starts = [0, *accumulate(shares)]
        self._samplers = [EpochSampler(share, self.steps, seed, shard) for shard, share in enumerate(shares)]

    def __next__(self) -> list[Rows]:
        return [start + next(sampler) for start, sampler in zip(self._starts, self._samplers, strict=False)]

    def coming(self, slot: int, slots: int) -> Iterator[Rows]:
        """Yield without end the rows of one rank's part of each batch to come, as long as the ranks stay the same."""
        following = copy(self)
        following._samplers = [copy(sampler) for sampler in self._samplers]
        while True:
            yield divide(next(following), slots)[slot]

    def go_to(self, step: int) -> None:
        """The next batch is that of `step`, counted from the training's start."""
        epoch, within = divmod(step, self.steps)
        for shard, sampler in enumerate(self._samplers):
            sampler.restore({"seed": self.seed, "rank": shard, "epoch": epoch, "step": within})


def divide(parts: Sequence[Rows], ranks: int) -> list[Rows]:
    """Divide a batch, which comes in one part per shard, over `ranks` ranks.

    Args:
        parts: as `ElasticSampler` yields them.

    Returns:
        One array of rows per rank; together they are the batch. Some are empty if ranks outnumber samples.
    """
    if len(parts) == ranks:
        return list(parts)
    return np.array_split(np.concatenate(parts), ranks)
