"""The training set where every rank can read all of it, and the batches of a training whose ranks may change.

The set is written once, in as many files as there are workers at first, and every rank maps it into memory. So a worker
that takes over a part of the batch has its samples already.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import torch

from farandole import tasks
from farandole.data import shards
from farandole.data.batch import Batch
from farandole.data.datasets import Dataset, Splits
from farandole.data.elastic_sampler import ElasticSampler, divide
from farandole.data.read_ahead import ahead
from farandole.data.sampler import check_filled
from farandole.data.samples import Reader, Samples
from farandole.data.shares import equal_shares
from farandole.recovery.options import ReplicaOptions
from farandole.runtime import files
from farandole.runtime.world import World
from farandole.tasks import Task

SHARDS, SHARES = "shards", "shares.json"


class Batches:
    """The samples that each worker trains on, step by step. Made by all ranks together.

    Args:
        folder: of the run.
        workers: their number at first, which is the number of shards.
    """

    def __init__(self, world: World, options: ReplicaOptions, folder: Path, workers: int) -> None:
        self.options, self.task = options, tasks.of(options)
        if world.rank == 0 and not is_divided(folder):
            divide_data(self.splits.train, workers, folder)
        world.control.Barrier()
        self.shares, self.reader = divided_data(self.task, options.seed, folder, world.device)
        check_filled(self.shares, options.batch, options.steps)
        self.sampler = ElasticSampler(self.shares, options.batch, options.seed)
        self._foreseen: tuple[int, int] | None = None  # the slot, of how many, that the reader expects

    def go_to(self, step: int) -> None:
        """Make the batch of `step` the next one."""
        self.sampler.go_to(step)
        self._foreseen = None

    def next_part(self, slot: int, slots: int) -> tuple[Batch, float, int]:
        """Return the part of the next batch for the worker in `slot`, its share of it, and the samples of the whole."""
        if self._foreseen != (slot, slots):
            self._foreseen = slot, slots
            ahead(self.reader, self.sampler.coming(slot, slots), self.options.seed, slot)
        parts = divide(next(self.sampler), slots)
        whole = sum(map(len, parts))
        return self.reader[parts[slot]], len(parts[slot]) / whole, whole

    @cached_property
    def splits(self) -> Splits[Samples]:
        """Return all samples, as one rank alone loads them: training, validation and test."""
        return self.task.data(self.options.seed)


def divide_data(train: Samples, workers: int, folder: Path) -> list[int]:
    """Divide the training set among `workers`, for all starts of the run in `folder`; return the shares.

    A built-in set is written there, one file for each share. Samples that every rank opens itself stay where they are.
    """
    shares = equal_shares(len(train), workers)
    if isinstance(train, Dataset):
        shards.write(train, shares, folder / SHARDS)
    else:
        files.write(folder / SHARES, files.json_text({"shares": shares}))
    return shares


def is_divided(folder: Path) -> bool:
    """Return whether `divide_data` has been called for this run."""
    return (folder / SHARES).exists() or (folder / SHARDS / shards.MANIFEST).exists()


def divided_data(task: Task, seed: int, folder: Path, device: torch.device) -> tuple[list[int], Reader]:
    """Return what `divide_data` has left: the shares, and a reader of the whole training set."""
    if task.is_sent:
        mapped = shards.MappedShards(folder / SHARDS)
        return mapped.shares, mapped.on(device)
    shares = files.read_object(folder / SHARES, "give a new --out")["shares"]
    return shares, task.data(seed).train.on(device)
