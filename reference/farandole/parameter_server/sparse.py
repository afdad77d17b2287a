"""Sparse training: workers pull and push only the rows that their batches use.

The model is `models.sparse_logistic` on the hashed words of real text (`data.text`): a table with a
row per feature and a column per class on the servers. A batch uses about one row in a hundred. A worker knows its next
batch, so it requests only that batch's rows, and pushes their gradient.

Cost per step of a worker with R rows of K float32: 4R + 4KR bytes for the pull (row numbers to the server, rows back)
and as many for the push, instead of 8KV for a dense table of V rows. Li et al. (OSDI 2014) train logistic regression on
billions of features in this way. Document 004.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from farandole.data import text
from farandole.data.sampler import steps_per_epoch
from farandole.data.shares import equal_shares, slices
from farandole.models.sparse_logistic import gradient, predict, touched_rows
from farandole.parameter_server import choices
from farandole.parameter_server.batches import Batches
from farandole.parameter_server.kv_worker import KVWorker, Start
from farandole.parameter_server.sparse_options import TextOptions
from farandole.parameter_server.training import pull
from farandole.runtime.recorder import Recorder
from farandole.runtime.world import World

Array = NDArray[Any]
Rows = NDArray[np.int64]

CLASSES = 8


class SparseTrainee:
    """Sparse logistic regression on one worker. Every rank reads the text from its own Python.

    Args:
        groups: the worker groups; `group` is this rank's own.
        dtype: of the table; float64 to compare with another way of computing the same.

    Raises:
        UsageError: fewer documents than workers, or a batch larger than the group's data.
    """

    plain_bytes: int | None = None

    def __init__(
        self,
        options: TextOptions,
        world: World,
        recorder: Recorder,
        groups: Sequence[tuple[int, ...]],
        group: int,
        dtype: DTypeLike = np.float32,
    ) -> None:
        self.world, self.options, self.workers = world, options, groups[group]
        splits = text.split(text.load(options.buckets, CLASSES), options.seed)
        workers = [rank for members in groups for rank in members]
        shards = dict(zip(workers, cut(splits.train, len(workers), options.shards), strict=True))
        self.shares = [len(shards[rank]) for rank in self.workers]
        self.epoch = steps_per_epoch(sum(self.shares), options.batch)
        self.shard = shards.get(world.rank)
        self.test, self.validation = splits.test, splits.validation
        self.table = np.zeros((options.buckets, CLASSES), dtype)

    def work(self, kv: KVWorker) -> None:
        """Iterations, until there is no work left."""
        policy = choices.make_policy(self.options, self.workers)
        for batch, share in self.batches():
            rows = touched_rows(batch)
            values = np.empty((len(rows), CLASSES), self.table.dtype)
            start = self.pull(kv, rows, values)
            if start is None:
                return
            self.world.begin_step(start.clock)
            with self.world.compute("forward and backward"):
                loss, _, gradients = gradient(values, batch)
            time.sleep(policy.pause(self.world.rank, start.clock))
            self.push(kv, rows, gradients, start, share)
            kv.report(start.clock, loss, len(batch))

    def batches(self) -> Iterator[tuple[text.SparseDataset, float]]:
        """This worker's batches, from the first, without end; and the share n_r / N of each."""
        assert self.shard is not None
        own = self.workers.index(self.world.rank)
        chosen = Batches(self.shares, own, self.options.batch, self.options.seed)
        while True:
            samples, share = next(chosen)
            yield self.shard[samples], share

    def pull(self, kv: KVWorker, rows: Rows, values: Array) -> Start | None:
        """Wait for permission, and for the table's `rows`, which come into `values`."""
        return pull(self.world, kv, values, rows)

    def push(self, kv: KVWorker, rows: Rows, gradients: Array, start: Start, share: float) -> None:
        """Push the gradient of `rows`."""
        kv.push(gradients, start.clock, share, rows)

    def complete(self, table: Array) -> Array:
        return table

    def validation_loss(self, table: Array) -> float:
        """Return the loss of the parameters `table` on the validation passages, which no worker has."""
        loss, _, _ = gradient(table[touched_rows(self.validation)], self.validation)
        return loss

    def judged(self, table: Array, trained: bool) -> dict[str, float] | None:
        if self.world.control.rank:
            return None
        return {"accuracy": float(np.mean(predict(table, self.test) == self.test.targets))}


def cut(train: text.SparseDataset, workers: int, how: str) -> list[text.SparseDataset]:
    """Return each worker's shard.

    Args:
        how: "documents", or "shuffled": `train` is in random order already.
    """
    if how == "documents":
        return text.shards_by_document(train, workers)
    return [train[part] for part in slices(equal_shares(len(train), workers))]
