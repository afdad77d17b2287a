"""Which samples and labels each Downpour replica has.

With --label-sets each worker knows some classes only, in its own numbering. It sends the manager the names of its
labels and receives the common numbering: a few hundred bytes, once. Without that (--no-align) the workers train one
model on targets that mean different things.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from farandole import tasks
from farandole.data import shards
from farandole.data.datasets import Dataset
from farandole.data.samples import Samples
from farandole.data.shares import equal_shares
from farandole.errors import UsageError
from farandole.parameter_server.classification import share_data
from farandole.parameter_server.downpour_options import DownpourOptions
from farandole.parameter_server.labels import align, local_label_sets
from farandole.parameter_server.local_labels import DIGITS, by_worker
from farandole.parameter_server.placement import MANAGER, Placement
from farandole.runtime.communicator import broadcast_text, gather_text
from farandole.runtime.recorder import Recorder
from farandole.runtime.world import World
from farandole.tasks import Task


@dataclass(frozen=True)
class Material:
    """The samples of one rank, and what its labels mean.

    Attributes:
        shard: this worker's samples.
        shares: how many samples each worker has, by rank.
        meanings: for each worker, the names that it gives to the model's outputs; none without --label-sets,
            where an output means the same to all.
        test: on rank 0, the test samples; their targets are the digits themselves, or characters.
    """

    task: Task
    shard: Samples
    shares: dict[int, int]
    meanings: list[list[str]]
    test: Samples | None


def known_labels(options: DownpourOptions, workers: int) -> list[list[str]]:
    """Return for each worker the names of its labels, in its own numbering; none if each worker knows all classes.

    Raises:
        UsageError: an option has no meaning without --label-sets, or excludes it.
    """
    if options.label_sets is None:
        if not options.align:
            raise UsageError("--no-align has no meaning where all replicas know all classes: give --label-sets too")
        return []
    if options.task:
        raise UsageError("--label-sets divides the names of the digits, and --task brings its own data: leave out one")
    if tasks.built_in(options).is_text:
        raise UsageError("--label-sets divides the names of the digits: give --data digits or mnist5k, or leave it out")
    if options.capabilities:
        raise UsageError("--capabilities and --label-sets both say who gets which samples: leave out one of them")
    return local_label_sets(DIGITS, workers, options.label_sets, options.seed)


def share(
    world: World,
    recorder: Recorder,
    options: DownpourOptions,
    task: Task,
    placement: Placement,
    known: list[list[str]],
) -> Material:
    """Send each worker its samples and, with --label-sets, the common numbering of its labels. Collective."""
    workers = placement.workers
    if options.label_sets is None:
        own, shares, splits = share_data(world, recorder, options, task, workers)
        return Material(task, own, shares, known, splits.test if splits else None)

    train, test = None, None
    sizes = np.zeros(len(workers), dtype=np.int64)
    if world.rank == 0:
        splits = tasks.built_in(options).data(options.seed)
        parts = by_worker(splits.train, known)
        sizes[:] = [len(part) for part in parts]
        inputs, targets = zip(*((part.inputs, part.targets) for part in parts), strict=True)
        train, test = Dataset(np.concatenate(inputs), np.concatenate(targets)), splits.test
    world.control.Bcast(sizes)
    shares = dict(zip(workers, sizes.tolist(), strict=True))
    shard = shards.distribute(options.loading, train, shares, world, recorder.shard_folder)
    assert isinstance(shard, Dataset)  # its labels have names
    if options.align:
        labels = known[workers.index(world.rank)] if world.rank in workers else []
        names, to_common = _agree(world, workers, labels)
        known = [names] * len(workers)
        if world.rank in workers:
            shard = Dataset(shard.inputs, to_common[shard.targets])
    return Material(task, shard, shares, known, test)


def _agree(world: World, workers: Sequence[int], own: Sequence[str]) -> tuple[list[str], NDArray[np.int64]]:
    """Let the manager align the workers' labels, and broadcast the result. Collective.

    Args:
        own: the names of this worker's labels, in its numbering; ignored on a rank that is no worker.

    Returns:
        The names in the common numbering, and this worker's number → common number.
    """
    texts = gather_text(world.control, json.dumps(own), MANAGER)
    answer = ""
    if world.rank == MANAGER:
        alignment = align([json.loads(texts[rank]) for rank in workers])
        to_common = [numbers.tolist() for numbers in alignment.to_common]
        answer = json.dumps([alignment.names, dict(zip(workers, to_common, strict=True))])
    names, to_common_of = json.loads(broadcast_text(world.control, answer, MANAGER))
    return names, np.array(to_common_of.get(str(world.rank), []), dtype=np.int64)


def everything(world: World, options: DownpourOptions, task: Task, placement: Placement) -> Material:
    """Load all samples on every worker, since each may receive any; `shares` is the average per worker."""
    splits = task.data(options.seed)
    shares = equal_shares(len(splits.train), len(placement.workers))
    of_rank = dict(zip(placement.workers, shares, strict=True))
    return Material(task, splits.train, of_rank, [], splits.test if world.rank == 0 else None)
