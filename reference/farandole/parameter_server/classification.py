"""A task's model on a parameter server: every pull and push has all parameters of the model."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from farandole import tasks
from farandole.compression.compressor import Compressor
from farandole.compression.error_feedback import ErrorFeedback
from farandole.compression.non_finite import check_own
from farandole.compression.table import FEEDBACK
from farandole.data import shards
from farandole.data.batch import Batch
from farandole.data.datasets import Splits
from farandole.data.samples import Reader, Samples
from farandole.data.shares import equal_shares, proportional_shares
from farandole.data.stream import Stream, described, in_batches
from farandole.data_parallel.accumulation import backward
from farandole.data_parallel.evaluation import judged, mean_of_statistics
from farandole.errors import UsageError
from farandole.parameter_server import choices, early_stopping
from farandole.parameter_server.batches import Batches
from farandole.parameter_server.contributions import (
    Contribution,
    PushElastic,
    PushGradient,
    PushInPlace,
    PushParameters,
)
from farandole.parameter_server.core.top_k import TopK
from farandole.parameter_server.kv_worker import KVWorker, Start
from farandole.parameter_server.options import PolicyOptions, ServerOptions
from farandole.parameter_server.training import pull
from farandole.runtime import devices
from farandole.runtime.buffers import FlatBuffers, buffers_as_bytes, set_buffers
from farandole.runtime.files import json_text
from farandole.runtime.recorder import Recorder
from farandole.runtime.world import World
from farandole.tasks import Task


def dense(
    options: PolicyOptions,
    world: World,
    recorder: Recorder,
    groups: Sequence[tuple[int, ...]],
    group: int,
    trainee: type[Trainee] | None = None,
) -> Trainee:
    """Return the workload of the options' task, a `Trainee` or the class given; rank 0 sends the shards. Collective."""
    task = tasks.of(options)
    if early_stopping.is_asked_for(options):
        tasks.check_validation(task)
    workers = [rank for members in groups for rank in members]
    shard, shares, splits = share_data(world, recorder, options, task, workers)
    of_group = {rank: shares[rank] for rank in groups[group]}
    return (trainee or Trainee)(world, options, task, shard, of_group, group, splits.test if splits else None)


class Trainee:
    """A task's model on one worker.

    Args:
        shares: how many samples each worker of the group has, by rank.
        group: the application; it sets the initial parameters.
        test: the test samples, on the rank that has them.
    """

    def __init__(
        self,
        world: World,
        options: PolicyOptions,
        task: Task,
        shard: Samples,
        shares: Mapping[int, int],
        group: int,
        test: Samples | None = None,
    ) -> None:
        self.world, self.options, self.task = world, options, task
        self.shard, self.shares, self.test = shard, shares, test
        self._validation: Samples | None = None
        devices.seed_everything(options.seed + group)
        self.model = task.model().to(world.device)
        if early_stopping.is_asked_for(options) and any(each.is_floating_point() for each in self.model.buffers()):
            raise UsageError(
                "--stop-below and --stop-stalled judge the servers' parameters, and only the workers know the model's "
                "running statistics (BatchNorm): leave them out, or take a model without (GroupNorm, LayerNorm)"
            )
        self.flat = FlatBuffers(self.model)
        self.table = self.flat.values_np
        self.plain_bytes = 0 if options.topk or options.compressor != "none" else None
        self._encoders: dict[int, Compressor] = {}  # a server's part each
        self.top_k = TopK(len(self.table), options.topk, self.table.dtype) if options.topk else None

    def work(self, kv: KVWorker) -> None:
        """Iterations, until there is no work left."""
        with self._contribution(kv) as contribution:
            self._iterate(kv, contribution)

    def _iterate(self, kv: KVWorker, contribution: Contribution) -> None:
        policy = choices.make_policy(self.options, list(self.shares))
        batches, reader = self._material()
        while start := pull(self.world, kv, contribution.into):
            for alone in range(contribution.period):  # 0: the one with the pull and the push
                iteration = start.clock * contribution.period + alone
                self.world.begin_step(iteration)
                rows, share = next(batches)
                with self.world.compute("forward and backward"):
                    if not alone:
                        contribution.pulled(share, start.parameters)
                    batch_loss = self._gradient(reader[rows])
                    if alone:
                        contribution.step_alone()
                    else:
                        pushed = contribution.to_push()
                if not alone:
                    time.sleep(policy.pause(self.world.rank, start.clock))
                    self._push(kv, pushed, start, share)
                kv.report(iteration, batch_loss, len(rows))

    def _material(self) -> tuple[Batches, Reader]:
        """Return this worker's batches as rows of its shard, and a reader of the shard."""
        number = list(self.shares).index(self.world.rank)
        batches = Batches(list(self.shares.values()), number, self.options.batch, self.options.seed)
        return batches, batches.read_by(self.shard, self.world.device)

    def complete(self, table: NDArray[Any]) -> NDArray[Any]:
        return table

    def judged(self, table: NDArray[Any], trained: bool) -> dict[str, float] | None:
        own = buffers_as_bytes(self.model)
        mean_of_statistics(self.model, self.world, trained)
        try:
            return self._judged(table)
        finally:
            set_buffers(self.model, own)  # another application's mean is not of this one's statistics

    def _judged(self, table: NDArray[Any]) -> dict[str, float] | None:
        if self.world.control.rank:
            return None
        if self.test is None:  # the rank that had it has died
            self.test = self.task.data(self.options.seed).test
        self.flat.values_np[:] = table
        self.flat.values_from_host()
        return judged(self.model, self.test, self.world.device, self.task.metrics)

    def validation_loss(self, table: NDArray[Any]) -> float:
        """Return the loss of the parameters `table` on the validation samples, which no worker has."""
        if self._validation is None:
            self._validation = self.task.data(self.options.seed).validation
        self.flat.values_np[:] = table
        self.flat.values_from_host()
        return judged(self.model, self._validation, self.world.device, {"loss": self.task.loss})["loss"]

    def _contribution(self, kv: KVWorker) -> Contribution:
        if self.options.update == "blend":
            return PushParameters(self.flat, self.options.lr)
        if self.options.update == "elastic":
            return PushElastic(self.flat, self.options.lr, self.options.elasticity, self.options.period)
        if kv.slot is not None and kv.window and kv.window.lends and self.world.device.type == "cpu":
            return PushInPlace(self.flat, kv.slot)
        return PushGradient(self.flat)

    def _gradient(self, batch: Batch) -> float:
        self.flat.zero_gradients()
        return backward(partial(self.task.loss, self.model), batch, 1.0, self.options.accumulate).item()

    def _push(self, kv: KVWorker, pushed: NDArray[Any], start: Start, share: float) -> None:
        if self.plain_bytes is not None:
            self.plain_bytes += pushed.nbytes
            check_own(pushed)
        if self.options.compressor != "none":
            counted = pushed.astype(np.float32, copy=False)  # what compressors count in
            with self.world.compute("encode"):
                payloads = {
                    partition: self._encoder(partition, layout.keys).encode(layout.part(counted))
                    for partition, layout in kv.layouts.items()
                }
            if self.options.compressor == "float16":
                for payload in payloads.values():
                    check_own(payload.view(np.float16), "its gradient in float16")
            kv.push_encoded(payloads, start.clock, share)
        elif self.top_k:
            with self.world.compute("encode"):
                entries, values = self.top_k.choose(pushed)
            kv.push(values, start.clock, share, rows=entries)
        else:
            kv.push(pushed, start.clock, share)

    def _encoder(self, partition: int, length: int) -> Compressor:
        if partition not in self._encoders:
            compressor = choices.make_compressor(self.options, self.world.rank)
            assert compressor is not None
            biased = self.options.compressor in FEEDBACK
            self._encoders[partition] = ErrorFeedback(compressor, length) if biased else compressor
        return self._encoders[partition]


def share_data(
    world: World, recorder: Recorder, options: ServerOptions, task: Task, workers: Sequence[int]
) -> tuple[Samples, dict[int, int], Splits[Samples] | None]:
    """Send each worker its shard from rank 0; in proportion to --capabilities, if these are given. Collective.

    Returns:
        The own shard (empty on a rank that is no worker), each worker's number of samples, and on rank 0, if it sends
        the shards, or on all ranks all samples.
    """
    splits = task.data(options.seed) if world.rank == 0 or not task.is_sent else None
    everything = in_batches(splits.train, options.batch, len(workers)) if splits else None
    count = np.array([len(everything) if everything is not None else 0])
    world.control.Bcast(count)
    if not options.capabilities:
        shares = equal_shares(int(count[0]), len(workers))
    elif len(options.capabilities) == len(workers):
        shares = proportional_shares(int(count[0]), options.capabilities)
    else:
        given = len(options.capabilities)
        raise UsageError(f"--capabilities has {given} numbers: give one for each of {len(workers)} workers")
    of_rank = dict(zip(workers, shares, strict=True))
    if isinstance(everything, Stream):
        recorder.write_beside("stream.json", json_text(described(everything, shares)))
    folder = recorder.shard_folder
    return shards.distribute(options.loading, everything, of_rank, world, folder, task.is_sent), of_rank, splits
