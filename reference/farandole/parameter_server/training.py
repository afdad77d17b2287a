"""Training the digits' classifiers with a parameter server: what the scenarios have in common.

A worker's iteration is document 004's six steps: its part of the data (1) is there; pull (2),
gradient (3), push (4); the servers update (5); again (6).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from farandole.data import datasets
from farandole.data.sampler import EpochSampler, batch_size, steps_per_epoch
from farandole.data.shares import equal_shares, proportional_shares, slices
from farandole.data_parallel.training import accuracy, load_shard, mean_cross_entropy
from farandole.errors import UsageError
from farandole.models.classifiers import MODELS
from farandole.parameter_server import choices, cluster
from farandole.parameter_server.client import Client, Start
from farandole.parameter_server.contributions import Contribution, PushElastic, PushGradient, PushParameters
from farandole.parameter_server.header import Header
from farandole.parameter_server.options import PolicyOptions, ServerOptions
from farandole.parameter_server.placement import Placement
from farandole.parameter_server.top_k import TopK
from farandole.runtime import devices
from farandole.runtime.buffers import FlatBuffers, sha256
from farandole.runtime.progress import bar
from farandole.runtime.record import Summary
from farandole.runtime.recorder import Recorder
from farandole.runtime.world import World


def train(scenario: str, options: PolicyOptions) -> Summary | None:
    """Train, evaluate and write the record; the summary on rank 0, None elsewhere."""
    choices.check(options)
    with World.start(options) as world:
        recorder = Recorder(world, scenario, options)
        placement = place(world, options, options.tree)
        groups = worker_groups(placement.workers, options.applications)
        shard, shares, splits = share_data(world, recorder, options, placement.workers)
        own_group = next((number for number, group in enumerate(groups) if world.rank in group), 0)
        trainee = Trainee(world, options, shard, {rank: shares[rank] for rank in groups[own_group]}, own_group)
        reports = Reports(recorder, len(placement.workers), options.steps)
        outcome = cluster.run(
            world,
            recorder,
            options,
            placement,
            [application(options, group, placement.aggregators or group, trainee.flat.values_np) for group in groups],
            work=trainee.work,
            reported=reports.add,
        )
        accuracies = [trainee.evaluate(table, splits.test) for table in outcome.tables] if splits else None
        trainee.load(outcome.tables[own_group])
        reports.close()
        return recorder.finish(
            steps=max(outcome.updates, default=0),
            samples=reports.samples,
            final_loss=reports.loss,
            test_accuracy=min(accuracies) if accuracies else None,
            params_sha256=sha256(trainee.model),
            staleness=ordered(outcome.staleness),
            lead=ordered(outcome.lead),
            cleaned=dict(outcome.cleaned),
        )


class Trainee:
    """One worker's model, data and way of working.

    Args:
        shares: how many samples each worker of the group has, by rank.
        group: the application; it sets the initial parameters.
    """

    def __init__(
        self, world: World, options: PolicyOptions, shard: datasets.Dataset, shares: Mapping[int, int], group: int
    ) -> None:
        self.world, self.options, self.shard, self.shares = world, options, shard, shares
        devices.seed_everything(options.seed + group)
        model = MODELS[options.model](shard.inputs.shape[1:], datasets.CLASSES, options.hidden)
        self.model = model.to(world.device)
        self.flat = FlatBuffers(self.model)
        self.top_k = TopK(len(self.flat.values_np), options.topk, self.flat.values_np.dtype) if options.topk else None

    def work(self, client: Client) -> None:
        """Iterations, until there is no work left."""
        contribution = self._contribution()
        workers = list(self.shares)
        number = workers.index(self.world.rank)
        batches = Batches(list(self.shares.values()), number, self.options.batch, self.options.seed)
        policy = choices.make_policy(self.options, workers)
        inputs = torch.from_numpy(np.array(self.shard.inputs)).to(self.world.device)
        targets = torch.from_numpy(np.array(self.shard.targets)).to(self.world.device)
        while start := pull(self.world, client, contribution.into):
            self.world.begin_step(start.clock)
            rows, share = next(batches)
            rows = rows.to(self.world.device)
            with self.world.compute("forward and backward"):
                contribution.pulled(share)
                loss = self._gradient(inputs[rows], targets[rows])
                pushed = contribution.to_push()
            time.sleep(policy.pause(self.world.rank, start.clock))
            self._push(client, pushed, start, share)
            client.report(start.clock, loss, len(rows))

    def load(self, table: NDArray[Any]) -> None:
        """Make these the model's parameters."""
        self.flat.values_np[:] = table
        self.flat.values_from_host()

    def evaluate(self, table: NDArray[Any], test: datasets.Dataset) -> float:
        """The test accuracy of the model with these parameters."""
        self.load(table)
        return accuracy(self.model, test, self.world.device)

    def _contribution(self) -> Contribution:
        if self.options.update == "blend":
            return PushParameters(self.flat, self.options.lr)
        if self.options.update == "elastic":
            return PushElastic(self.flat, self.options.lr, self.options.elasticity)
        return PushGradient(self.flat)

    def _gradient(self, inputs: Tensor, targets: Tensor) -> float:
        self.flat.zero_gradients()
        loss = mean_cross_entropy(self.model(inputs), targets)
        loss.backward()
        return loss.item()

    def _push(self, client: Client, pushed: NDArray[Any], start: Start, share: float) -> None:
        if self.top_k:
            entries, values = self.top_k.choose(pushed)
            client.push(values, start.clock, share, rows=entries)
        else:
            client.push(pushed, start.clock, share)


def pull(world: World, client: Client, into: NDArray[Any], rows: NDArray[np.int64] | None = None) -> Start | None:
    """Wait for permission and parameters; in the trace, what the policy held back counts as waiting."""
    begin = time.perf_counter()
    start: Start | None = client.wait(client.start(into, rows), "pull")
    end = time.perf_counter()
    granted = min(end, begin + start.held_s) if start else end
    world.trace.add("wait for others", "wait", begin, granted)
    world.trace.add("push and pull", "communicate", granted, end)
    return start


class Batches:
    """One worker's batches, and each one's share of the whole batch.

    Args:
        shares: samples of each worker.
        own: which of them is this one.
        batch: samples of a whole batch.
    """

    def __init__(self, shares: Sequence[int], own: int, batch: int, seed: int) -> None:
        self.shares = shares
        self.epoch = steps_per_epoch(sum(shares), batch)
        self.sampler = EpochSampler(shares[own], self.epoch, seed, own)
        self.taken = 0

    def __next__(self) -> tuple[Tensor, float]:
        """Rows of the shard, and n_r / N."""
        rows = next(self.sampler)
        whole = sum(batch_size(share, self.epoch, self.taken) for share in self.shares)
        self.taken += 1
        return torch.from_numpy(rows), len(rows) / whole


class Reports:
    """Turns the workers' reports into metrics.jsonl: a line for as many of them as there are workers.

    A line then stands for about as many samples as a synchronous step, whatever the policy.
    """

    def __init__(self, recorder: Recorder, workers: int, steps: int) -> None:
        self.recorder, self.workers = recorder, workers
        self.samples = self.lines = 0
        self.loss: float | None = None
        self._batch: list[Header] = []
        self._bar = bar(steps, recorder.world.rank)

    def add(self, report: Header) -> None:
        self._batch.append(report)
        if len(self._batch) == self.workers:
            self._write()

    def close(self) -> None:
        """Write what is left, and end the progress bar."""
        if self._batch:
            self._write()
        self._bar.close()

    def _write(self) -> None:
        samples = sum(report.samples for report in self._batch)
        self.loss = sum(report.loss * report.samples for report in self._batch) / samples if samples else 0.0
        self.recorder.log(step=self.lines, wall_s=self.recorder.elapsed_s, loss=self.loss, samples=samples)
        self.lines += 1
        self.samples += samples
        self._batch.clear()
        self._bar.update()


def application(
    options: PolicyOptions, workers: tuple[int, ...], clients: tuple[int, ...], table: NDArray[Any]
) -> cluster.Application:
    """One model on the servers, kept and moved as the options say."""
    in_rounds = choices.make_policy(options, clients).in_rounds
    return cluster.Application(
        table=table,
        workers=workers,
        clients=clients,
        policy=partial(choices.make_policy, options, clients),
        rule=partial(choices.make_rule, options),
        correction=partial(choices.make_correction, options),
        limit=options.steps * (1 if in_rounds else len(clients)),
    )


def place(world: World, options: ServerOptions, fan_in: int | None = None) -> Placement:
    """The placement asked for, or the usual one."""
    if options.place is None:
        return Placement.usual(world.size, options.servers, fan_in)
    return Placement.parse(options.place, world.size)


def worker_groups(workers: Sequence[int], applications: int) -> list[tuple[int, ...]]:
    """The workers of each application.

    Raises:
        UsageError: more applications than workers.
    """
    if applications > len(workers):
        raise UsageError(f"--applications {applications}: there are only {len(workers)} workers, each needs at least 1")
    return [tuple(workers[part]) for part in slices(equal_shares(len(workers), applications))]


def share_data(
    world: World, recorder: Recorder, options: ServerOptions, workers: Sequence[int]
) -> tuple[datasets.Dataset, dict[int, int], datasets.Splits[datasets.Dataset] | None]:
    """Rank 0 loads the data and sends each worker its shard; by capability, if that is given. Collective.

    Returns:
        The own shard (empty on a rank that is no worker), each worker's number of samples, and on rank
        0 all the data.
    """
    splits = datasets.split(datasets.load(options.data), options.seed) if world.rank == 0 else None
    count = np.array([len(splits.train) if splits else 0])
    world.control.Bcast(count)
    if not options.capabilities:
        shares = equal_shares(int(count[0]), len(workers))
    elif len(options.capabilities) == len(workers):
        shares = proportional_shares(int(count[0]), options.capabilities)
    else:
        given = len(options.capabilities)
        raise UsageError(f"--capabilities has {given} numbers: give one for each of {len(workers)} workers")
    of_rank = dict(zip(workers, shares, strict=True))
    everything = splits.train if splits else None
    return load_shard(options.loading, everything, of_rank, world, recorder.shard_folder), of_rank, splits


def ordered(histogram: dict[str, int]) -> dict[str, int]:
    """A histogram in the order of its values."""
    return {value: histogram[value] for value in sorted(histogram, key=int)}
