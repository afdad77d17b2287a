"""Sparse and hybrid training, one run after the other; synchronous ones against a single process, every step.

Arguments: a folder for the records; the runs as JSON, each an object of options, where "scenario" is
"sparse" or "hybrid". Tables are float64. The answer is a list of the runs' results. Compared with
a single process is what --sync bsp trains with a rule that torch has in the same way.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from mpi4py import MPI
from torch.nn.functional import cross_entropy

from farandole.data import text
from farandole.data.sampler import EpochSampler
from farandole.parameter_server.hybrid import HybridTrainee
from farandole.parameter_server.kv_worker import KVWorker, Start
from farandole.parameter_server.sparse import CLASSES, SparseTrainee, cut
from farandole.parameter_server.sparse_options import HybridOptions, TextOptions
from farandole.parameter_server.training import train
from farandole.runtime.recorder import Recorder
from farandole.runtime.world import World

RULES = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad}
text.load = cache(text.load)


def single_process(options: TextOptions, workers: int, epoch: int) -> Iterator[torch.Tensor]:
    """Yield the dense table before each step: own loop, torch's optimizer, the union of all workers' batches."""
    train = text.split(text.load(options.buckets, CLASSES), options.seed).train
    shards = cut(train, workers, options.shards)
    samplers = [EpochSampler(len(shard), epoch, options.seed, number) for number, shard in enumerate(shards)]
    table = torch.zeros(options.buckets, CLASSES, dtype=torch.float64, requires_grad=True)
    optimizer = RULES[options.update]([table], lr=options.lr)
    while True:
        yield table.detach()
        batches = [shard[next(sampler)] for shard, sampler in zip(shards, samplers, strict=True)]
        inputs = np.concatenate([dense(batch, options.buckets) for batch in batches])
        targets = np.concatenate([batch.targets for batch in batches])
        optimizer.zero_grad()
        cross_entropy(torch.from_numpy(inputs) @ table, torch.from_numpy(targets)).backward()
        optimizer.step()


def dense(batch: text.SparseDataset, buckets: int) -> np.ndarray:
    matrix = np.zeros((len(batch), buckets))
    matrix[np.repeat(np.arange(len(batch)), np.diff(batch.indptr)), batch.indices] = batch.values
    return matrix


def checked(kind: type[SparseTrainee], options: TextOptions, found: dict[str, Any]) -> Any:
    """A trainee that compares its pulled rows with the single process, and its final table, too."""
    compared = options.sync == "bsp" and options.update in RULES

    class Checked(kind):
        def __init__(self, world: World, recorder: Recorder, groups: list[tuple[int, ...]], group: int) -> None:
            super().__init__(options, world, recorder, groups, group, np.float64)
            self.single = single_process(options, len(self.workers), self.epoch)
            self.steps = 0
            self.largest = np.array([-1.0])  # difference so far; -1: nothing has been compared

        def pull(self, client: KVWorker, rows: np.ndarray, values: np.ndarray) -> Start | None:
            start = super().pull(client, rows, values)
            if start and compared:
                assert start.clock == self.steps
                self.compare(values, next(self.single).numpy()[rows])
                self.steps += 1
            return start

        def complete(self, table: np.ndarray) -> np.ndarray:
            whole = super().complete(table)
            found["fingerprint"] = float(whole.ravel() @ np.random.default_rng(0).normal(size=whole.size))
            found["moved"] = float(np.abs(whole).max())
            if compared and self.world.rank in self.workers:
                assert self.steps == options.steps
                self.compare(whole, next(self.single).numpy())
            self.world.control.Allreduce(MPI.IN_PLACE, self.largest, MPI.MAX)
            found["difference"] = float(self.largest[0])
            return whole

        def compare(self, ours: np.ndarray, expected: np.ndarray) -> None:
            difference = np.abs(ours - expected).max()
            assert difference <= 1e-12, f"step {self.steps}: {difference}"
            self.largest[0] = max(self.largest[0], difference)

    return Checked


answers = []
for number, wanted in enumerate(json.loads(sys.argv[2])):
    kind, option_type = {"sparse": (SparseTrainee, TextOptions), "hybrid": (HybridTrainee, HybridOptions)}[
        wanted.pop("scenario")
    ]
    options = option_type(out=Path(sys.argv[1]) / str(number), wait_timeout=30, **wanted | {"data": "text"})
    found: dict[str, Any] = {}
    summary = train("sparse_runs", options, checked(kind, options, found))
    if summary:
        answers.append(asdict(summary) | found)
if answers:
    print(json.dumps(answers))
