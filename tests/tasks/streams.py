"""Tasks whose training samples come as a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import mse_loss
from torch.utils.data import IterableDataset, get_worker_info

from farandole import Task
from tests.tasks.waves import TEST, TRAIN, absolute, layers, waves

Sample = tuple[Tensor, Tensor]


class Lines(IterableDataset[Sample]):
    """Samples as in lines of a file.

    Args:
        worker: the number of the worker that may read them; None: the training process.
    """

    def __init__(self, worker: int | None = None) -> None:
        self.worker = worker

    def __iter__(self) -> Iterator[Sample]:
        worker = get_worker_info()
        assert (worker.id if worker else None) == self.worker
        seen, following = map(torch.from_numpy, waves(TRAIN, 0))
        yield from zip(seen, following, strict=True)


class Divided(Lines):
    """A stream that divides itself, as several files."""

    def __init__(self, num_shards: int = 1, index: int = 0) -> None:
        super().__init__()
        self.num_shards, self.index = num_shards, index

    def shard(self, num_shards: int, index: int) -> Divided:
        return Divided(num_shards, index)

    def __iter__(self) -> Iterator[Sample]:
        assert self.num_shards > 1, "it is read in parts only"
        yield from list(super().__iter__())[self.index :: self.num_shards]


def _task(train: Any, **more: Any) -> Task:
    test = more.pop("test", waves(TEST, 1))
    return Task(layers, train, test, waves(TEST, 2), criterion=mse_loss, metrics={"error": absolute}, **more)


def lines() -> Task:
    return _task(Lines())


def lines_ahead() -> Task:
    return _task(Lines(worker=0), loader={"num_workers": 1})


def divided() -> Task:
    return _task(Divided())


# Mistakes of users.


def by_two_workers() -> Task:
    return _task(Lines(), loader={"num_workers": 2})


def endless_test() -> Task:
    return _task(Lines(), test=Lines())


class Nothing(IterableDataset[Sample]):
    def __iter__(self) -> Iterator[Sample]:
        return iter(())


def nothing() -> Task:
    return _task(Nothing())
