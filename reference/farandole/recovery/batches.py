"""The training set where every rank can read all of it, and the batches of a training whose ranks may change.

The set is written once, in as many files as there are workers at first, and every rank maps it into memory. So a worker
that takes over a part of the batch has its samples already.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from farandole import tasks
from farandole.data import shards
from farandole.data.datasets import Dataset, Splits
from farandole.data.elastic_sampler import ElasticSampler, divide
from farandole.data.sampler import check_filled
from farandole.data.shares import equal_shares
from farandole.recovery.options import ReplicaOptions
from farandole.runtime.world import World


class Batches:
    """The samples that each worker trains on, step by step. Made by all ranks together.

    Args:
        folder: of the run.
        workers: their number at first, which is the number of shards.
    """

    def __init__(self, world: World, options: ReplicaOptions, folder: Path, workers: int) -> None:
        self.device, self.options, self.task = world.device, options, tasks.of(options)
        written = folder / "shards"
        if world.rank == 0 and not (written / "manifest.json").exists():
            train = self.splits.train
            shards.write(train, equal_shares(len(train), workers), written)
        world.control.Barrier()
        self.data = shards.MappedShards(written)
        check_filled(self.data.shares, options.batch, options.steps)
        self.sampler = ElasticSampler(self.data.shares, options.batch, options.seed)

    def go_to(self, step: int) -> None:
        """Make the batch of `step` the next one."""
        self.sampler.go_to(step)

    def next_part(self, slot: int, slots: int) -> tuple[Tensor, Tensor, int]:
        """Return the part of the next batch for the worker in `slot`: inputs, targets, and the batch's samples."""
        parts = divide(next(self.sampler), slots)
        batch = self.data[parts[slot]]
        inputs, targets = (torch.from_numpy(each).to(self.device) for each in (batch.inputs, batch.targets))
        return inputs, targets, sum(map(len, parts))

    @cached_property
    def splits(self) -> Splits[Dataset]:
        """All samples, as one rank alone loads them: training, validation and test."""
        return self.task.data(self.options.seed)
