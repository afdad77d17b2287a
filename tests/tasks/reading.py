"""Tasks whose samples are read one at a time, by worker processes or without."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss
from torch.utils.data import Dataset, get_worker_info

from farandole import Task
from tests.tasks.waves import TEST, TRAIN, layers, waves

LOADER = {"num_workers": 2, "prefetch_factor": 3}


class Files(Dataset[dict[str, Tensor]]):
    """Samples as in files that are opened when they are read.

    Args:
        by_workers: a sample read in the training process is an error.
    """

    def __init__(self, count: int, seed: int, by_workers: bool) -> None:
        self.seen, self.following = waves(count, seed)
        self.by_workers = by_workers

    def __len__(self) -> int:
        return len(self.seen)

    def __getitem__(self, number: int) -> dict[str, Tensor]:
        assert bool(get_worker_info()) == self.by_workers
        return {"seen": torch.from_numpy(self.seen[number]), "following": torch.from_numpy(self.following[number])}


def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return mse_loss(model(batch["seen"]), batch["following"])


def collate(samples: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([sample[name] for sample in samples]) for name in samples[0]}


def with_dropout() -> nn.Module:
    return nn.Sequential(nn.Dropout(0.1), layers())


def _task(loader: dict[str, Any]) -> Task:
    train, test = (Files(count, seed, bool(loader)) for count, seed in ((TRAIN, 0), (TEST, 1)))
    return Task(model=with_dropout, train=train, test=test, loss=loss, collate=collate, loader=loader)


def alone() -> Task:
    """Read by the training process."""
    return _task({})


def by_workers() -> Task:
    """The same, read by two workers."""
    return _task(LOADER)


def by_spawned_workers() -> Task:
    """The same, by workers that have nothing of the rank's memory."""
    return _task({"num_workers": 1, "multiprocessing_context": "spawn"})


class Failing(Files):
    """A data set of which one sample cannot be read.

    Args:
        how: a signal that ends the worker, or the seconds for which it reads.
    """

    def __init__(self, how: signal.Signals | float) -> None:
        super().__init__(TRAIN, 0, by_workers=True)
        self.how = how

    def __getitem__(self, number: int) -> dict[str, Tensor]:
        if number == TRAIN // 2:
            if isinstance(self.how, signal.Signals):
                os.kill(os.getpid(), self.how)
            time.sleep(self.how)
        return super().__getitem__(number)


def worker_dies() -> Task:
    return Task(layers, Failing(signal.SIGKILL), Files(TEST, 1, True), loss=loss, loader=LOADER)


def worker_hangs() -> Task:
    return Task(layers, Failing(1000.0), Files(TEST, 1, True), loss=loss, loader=LOADER | {"timeout": 2})


def shuffled() -> Task:
    return _task({"num_workers": 2, "shuffle": True})


def prefetching_nobody() -> Task:
    return _task({"num_workers": 2, "prefetch_factor": -1})


def arrays_by_workers() -> Task:
    return Task(layers, waves(TRAIN, 0), waves(TEST, 1), criterion=mse_loss, loader=LOADER)
