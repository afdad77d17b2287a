"""What the scenario downpour runs: replicas on real data, servers with Adagrad, labels that may need alignment.

With --label-sets each worker knows some classes only, in its own numbering. It tells the manager
the names of its labels and is told what its numbers are in the common numbering: a few hundred
bytes, once. Without that the workers train one model on targets that mean different things, and
what an answer means depends on whom one asks. So accuracy is the mean over the workers of how
often the name that a worker reads out of an answer is the right one, on all classes; a worker that
has been told the common numbering can read every answer.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from farandole.data import datasets
from farandole.data.shares import equal_shares
from farandole.data_parallel.evaluation import accuracy
from farandole.data_parallel.training import load_shard
from farandole.errors import UsageError
from farandole.models import choices
from farandole.parameter_server import cluster
from farandole.parameter_server.classification import share_data
from farandole.parameter_server.departures import Departures
from farandole.parameter_server.downpour import Replica
from farandole.parameter_server.labels import align, local_label_sets
from farandole.parameter_server.local_labels import DIGITS, by_worker, numbered
from farandole.parameter_server.options import DownpourOptions
from farandole.parameter_server.placement import MANAGER, Placement
from farandole.parameter_server.policies import Asynchronous
from farandole.parameter_server.report_lines import ByCount
from farandole.parameter_server.task_replica import MiniBatches, TaskReplica
from farandole.parameter_server.tasks import TaskQueue
from farandole.parameter_server.training import Batches, Reports, place
from farandole.parameter_server.update_rules import Adagrad
from farandole.runtime.buffers import sha256
from farandole.runtime.communicator import broadcast_text, gather_text
from farandole.runtime.record import Summary
from farandole.runtime.recorder import Recorder
from farandole.runtime.world import World


@dataclass(frozen=True)
class Material:
    """What there is to learn from.

    Attributes:
        shard: our own samples.
        shares: how many samples each worker has, by rank.
        meanings: for each worker, the names that it gives to the model's outputs; none without --label-sets,
            where an output means the same to all.
        test: on rank 0, the samples to judge by; their targets are the digits themselves, or characters.
    """

    shard: datasets.Dataset
    shares: dict[int, int]
    meanings: list[list[str]]
    test: datasets.Dataset | None


def train(scenario: str, options: DownpourOptions) -> Summary | None:
    """Train, evaluate and write the record; the summary on the rank that writes it, None elsewhere."""
    choices.check(options)
    if options.tasks:
        _check_tasks(options)
    with World.start(options) as world:
        placement = _place(world, options)
        known = _known_labels(options, len(placement.workers))
        recorder = Recorder(world, scenario, options)
        replica: Replica
        tasks: TaskQueue | None = None
        if options.tasks:
            material = _everything(world, options, placement)
            replica, tasks = _task_replica(world, options, material)
        else:
            material = _share(world, recorder, options, placement, known)
            replica = _replica(world, options, material)
        departures = Departures.where_possible(world, recorder, options, placement)
        reports = Reports(recorder, ByCount(len(placement.workers)), options.steps, departures)
        application = cluster.Application(
            table=replica.flat.values_np,
            workers=placement.workers,
            clients=placement.workers,
            policy=lambda: Asynchronous(placement.workers),
            rule=lambda values: Adagrad(values, options.lr),
            correction=lambda: None,
            limit=None if tasks else -(-options.steps * len(placement.workers) // options.n_fetch),
        )
        outcome = cluster.run(
            world,
            recorder,
            options,
            placement,
            [application],
            work=replica.work,
            reported=reports.add,
            survivor=reports if departures else None,
            tasks=tasks,
        )
        replica.flat.values_np[:] = outcome.tables[0]
        replica.flat.values_from_host()
        reports.close()
        return recorder.finish(
            steps=max(outcome.updates, default=0),
            samples=reports.samples,
            final_loss=reports.loss,
            test_accuracy=_accuracy(world, replica, material, options),
            params_sha256=sha256(replica.model),
            faults=departures.faults() if departures else (),
            tasks=tasks.figures() if tasks else None,
            **outcome.figures(),
        )


def _place(world: World, options: DownpourOptions) -> Placement:
    placement = place(world, options)
    if placement.aggregators:
        raise UsageError("downpour has no aggregators, since replicas do not go in step: leave them out of --place")
    return placement


def _known_labels(options: DownpourOptions, workers: int) -> list[list[str]]:
    """For each worker the names of its labels, in its own numbering; none if all know all."""
    if options.label_sets is None:
        if not options.align:
            raise UsageError("--no-align has no meaning where all replicas know all classes: give --label-sets too")
        return []
    if options.data == "pydoc":
        raise UsageError("--label-sets divides the names of the digits: give --data digits or mnist5k, or leave it out")
    if options.capabilities:
        raise UsageError("--capabilities and --label-sets both say who gets which samples: leave out one of them")
    return local_label_sets(DIGITS, workers, options.label_sets, options.seed)


def _share(
    world: World, recorder: Recorder, options: DownpourOptions, placement: Placement, known: list[list[str]]
) -> Material:
    """Every worker gets its samples, and if need be the common numbering of its labels. Collective."""
    workers = placement.workers
    if options.label_sets is None:
        shard, shares, splits = share_data(world, recorder, options, workers)
        return Material(shard, shares, known, splits.test if splits else None)

    train, test = None, None
    sizes = np.zeros(len(workers), dtype=np.int64)
    if world.rank == 0:
        splits = datasets.split(datasets.load(options.data), options.seed)
        shards = by_worker(splits.train, known)
        sizes[:] = [len(shard) for shard in shards]
        inputs, targets = zip(*((shard.inputs, shard.targets) for shard in shards), strict=True)
        train, test = datasets.Dataset(np.concatenate(inputs), np.concatenate(targets)), splits.test
    world.control.Bcast(sizes)
    shares = dict(zip(workers, sizes.tolist(), strict=True))
    shard = load_shard(options.loading, train, shares, world, recorder.shard_folder)
    if options.align:
        own = known[workers.index(world.rank)] if world.rank in workers else []
        names, to_common = _agree(world, workers, own)
        known = [names] * len(workers)
        if world.rank in workers:
            shard = datasets.Dataset(shard.inputs, to_common[shard.targets])
    return Material(shard, shares, known, test)


def _agree(world: World, workers: Sequence[int], own: Sequence[str]) -> tuple[list[str], NDArray[np.int64]]:
    """The workers tell the manager their labels; it aligns them and tells everybody. Collective.

    Args:
        own: our labels' names, in our numbering; ignored on a rank that is no worker.

    Returns:
        The names in the common numbering, and our number → common number.
    """
    texts = gather_text(world.control, json.dumps(own), MANAGER)
    answer = ""
    if world.rank == MANAGER:
        alignment = align([json.loads(texts[rank]) for rank in workers])
        to_common = [numbers.tolist() for numbers in alignment.to_common]
        answer = json.dumps([alignment.names, dict(zip(workers, to_common, strict=True))])
    names, to_common_of = json.loads(broadcast_text(world.control, answer, MANAGER))
    return names, np.array(to_common_of.get(str(world.rank), []), dtype=np.int64)


def _replica(world: World, options: DownpourOptions, material: Material) -> Replica:
    """This rank's copy of the model, which only a worker trains."""
    shard, workers = material.shard, list(material.shares)
    number = workers.index(world.rank) if world.rank in workers else 0
    batches = Batches(list(material.shares.values()), number, options.batch, options.seed)
    inputs = torch.from_numpy(np.array(shard.inputs)).to(world.device)
    targets = torch.from_numpy(np.array(shard.targets)).to(world.device)

    def next_batch() -> tuple[Tensor, Tensor, float]:
        rows, share = next(batches)
        rows = rows.to(world.device)
        return inputs[rows], targets[rows], share

    model = choices.build(options).to(world.device)
    return Replica(
        world,
        model,
        next_batch,
        n_fetch=options.n_fetch,
        n_push=options.n_push,
        local_lr=options.local_lr,
        overlap=options.overlap,
    )


def _check_tasks(options: DownpourOptions) -> None:
    """Refuse options that do not go with --tasks.

    Raises:
        UsageError: it names the option and the reason.
    """
    for given, what in (
        (
            options.n_fetch != options.n_push,
            f"--n-fetch {options.n_fetch}: a worker fetches and pushes once per task",
        ),
        (options.label_sets, "--label-sets: any worker may receive any sample"),
        (options.capabilities, "--capabilities: a fast worker receives more tasks anyway"),
        (options.loading == "files", "--loading files: every worker has all the data"),
        (options.replicas > 1, "--replicas: a successor of the manager would not know which tasks are done"),
    ):
        if given:
            remedy = f"give --n-fetch {options.n_push} too" if options.n_fetch != options.n_push else "leave it out"
            raise UsageError(f"--tasks does not go with {what}; {remedy}")


def _everything(world: World, options: DownpourOptions, placement: Placement) -> Material:
    """Load all samples on every worker, since each may receive any; `shares` is the average per worker."""
    splits = datasets.split(datasets.load(options.data), options.seed)
    shares = equal_shares(len(splits.train), len(placement.workers))
    of_rank = dict(zip(placement.workers, shares, strict=True))
    return Material(splits.train, of_rank, [], splits.test if world.rank == 0 else None)


def _task_replica(world: World, options: DownpourOptions, material: Material) -> tuple[TaskReplica, TaskQueue]:
    """Return this rank's copy of the model, and the queue of tasks: steps times workers mini-batches in all."""
    workers = len(material.shares)
    total = options.steps * workers
    batches = MiniBatches(len(material.shard), options.batch, workers, options.seed)
    model = choices.build(options).to(world.device)
    replica = TaskReplica(world, model, material.shard, batches, total, options.n_push, options.local_lr)
    return replica, TaskQueue(-(-total // options.n_push))


def _accuracy(world: World, replica: Replica, material: Material, options: DownpourOptions) -> float | None:
    """How often an answer is right; if workers read it differently, what each reads, and the mean over them."""
    if world.control.rank:
        return None
    test = material.test or datasets.split(datasets.load(options.data), options.seed).test  # who had it may have died
    if not material.meanings:
        return accuracy(replica.model, test, world.device)
    inputs, digits = test.inputs, test.targets
    judged = [datasets.Dataset(inputs, numbered(digits, names)) for names in material.meanings]
    return sum(accuracy(replica.model, test, world.device) for test in judged) / len(judged)
