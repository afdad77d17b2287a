"""The data of one pipeline: its share, batch by batch, cut into micro-batches.

Every rank of a pipeline draws the same sample indices from the same sampler, so every rank knows the number of rows in
a micro-batch without a message. Only the first and the last stage hold the data themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from farandole.data.sampler import EpochSampler, batch_size, steps_per_epoch
from farandole.data.samples import Samples
from farandole.data.shares import equal_shares, slices
from farandole.errors import UsageError

Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass
class CutBatch:
    """The micro-batches that are under way together.

    Attributes:
        parts: of each micro-batch the rows of `shard` it consists of.
        wholes: of each the size of the whole batch that it is a part of, over all pipelines.
        known: told of each weighted loss when it is there.
        losses: of each that has been through the last stage, its loss times its share of the whole batch.
    """

    shard: Shard
    parts: Sequence[NDArray[np.intp]]
    wholes: Sequence[int]
    loss: Loss
    known: Callable[[int, float], object] | None = None
    losses: dict[int, float] = field(default_factory=dict)

    def rows(self, micro_batch: int) -> int:
        return len(self.parts[micro_batch])

    def inputs(self, micro_batch: int) -> Tensor:
        return self.shard.batch(self.parts[micro_batch])[0]

    def weighted_loss(self, micro_batch: int, outputs: Tensor) -> Tensor:
        targets = self.shard.batch(self.parts[micro_batch])[1]
        weighted = self.loss(outputs, targets) * (self.rows(micro_batch) / self.wholes[micro_batch])
        seen = micro_batch in self.losses  # recomputation asks twice
        self.losses[micro_batch] = weighted.item()
        if self.known and not seen:
            self.known(micro_batch, self.losses[micro_batch])
        return weighted


class Shard:
    """One pipeline's share of the training set.

    Args:
        everything: the whole training set, where this rank needs it: at the first and the last stage.
        samples: its size, known to all.
        batch: samples per step, over all pipelines together.
        pipelines, number: how many share the set, and which of them this is.

    Attributes:
        kind: the type of the inputs, at the first and the last stage.

    Raises:
        UsageError: a batch smaller than the number of pipelines, or larger than the set.
    """

    def __init__(
        self,
        everything: Samples | None,
        samples: int,
        *,
        batch: int,
        pipelines: int,
        number: int,
        seed: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.shares = equal_shares(samples, pipelines)
        self.number = number
        self.epoch = steps_per_epoch(samples, batch)
        if batch < pipelines:
            raise UsageError(f"--batch {batch} for {pipelines} pipelines: give at least 1 sample for each")
        self.sampler = EpochSampler(self.shares[number], self.epoch, seed, number)
        self.dtype = dtype
        self.reader = everything[slices(self.shares)[number]].on(device) if everything else None
        self.kind = self.batch(np.arange(0))[0].dtype if self.reader else dtype

    def batch(self, rows: NDArray[np.intp]) -> tuple[Tensor, Tensor]:
        """Return the inputs and the targets of some samples, at the first and the last stage."""
        assert self.reader
        inputs, targets = self.reader[rows]
        return inputs.to(self.dtype) if inputs.is_floating_point() else inputs, targets

    @property
    def smallest_batch(self) -> int:
        """Of any step and any pipeline."""
        return min(self.shares) // self.epoch

    def least_batch(self, parts: int) -> int | None:
        """Return the smallest batch with which every pipeline has `parts` samples in each step; None: there is none."""
        samples = sum(self.shares)
        batches = range(len(self.shares) * parts, samples + 1)
        enough = (each for each in batches if min(self.shares) // steps_per_epoch(samples, each) >= parts)
        return next(enough, None)

    @property
    def largest_batch(self) -> int:
        """Of this pipeline."""
        return batch_size(self.shares[self.number], self.epoch, 0)

    def whole(self, step: int) -> int:
        """Samples of a step, over all pipelines."""
        return sum(batch_size(share, self.epoch, step) for share in self.shares)

    def go_to(self, step: int) -> None:
        """The next batch is that of `step`."""
        epoch, step = divmod(step, self.epoch)
        self.sampler.restore(self.sampler.state() | {"epoch": epoch, "step": step})

    def cut(self, step: int, micro_batches: int, loss: Loss) -> CutBatch:
        """Return the next batch in parts whose sizes differ by at most one."""
        rows = next(self.sampler)
        parts = [rows[part] for part in slices(equal_shares(len(rows), micro_batches))]
        return CutBatch(self, parts, [self.whole(step)] * micro_batches, loss)

    def stream(self, steps: int, loss: Loss, known: Callable[[int, float], object]) -> CutBatch:
        """Return the next batches, uncut, one behind the other.

        Args:
            known: told of each batch's weighted loss when it is there.
        """
        parts, wholes = [next(self.sampler) for _ in range(steps)], [self.whole(step) for step in range(steps)]
        return CutBatch(self, parts, wholes, loss, known)
