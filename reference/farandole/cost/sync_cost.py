"""Document 002 on this machine: C = T_comm + T_comp of each method, predicted first and then measured.

    1. α and β of the network, and each method's computing times, are measured (`calibration`).
    2. From them alone each method's step is predicted (`predictions`).
    3. Each method trains, from the same parameters, with the same batches, and is timed.

The four sides of the document's cost function are side by side then: communication, computing with its waiting, the
steps to a loss, and how much of the speed is left with more workers. All methods keep the learning rate.

Cost: the measurements, and one training of each method.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI
from torch import nn

from farandole import tasks
from farandole.collectives.costs import Link
from farandole.cost import calibration
from farandole.cost.calibration import Part
from farandole.cost.cost_function import NoiseScale
from farandole.cost.findings import Findings, Row
from farandole.cost.options import SyncCostOptions
from farandole.cost.predictions import Calibration, efficiency, predicted
from farandole.cost.stragglers import Times
from farandole.cost.strategies import compressor, maker
from farandole.data import shards
from farandole.data.sampler import EpochSampler, batch_size, check_filled, samples_used, steps_per_epoch
from farandole.data.shares import equal_shares
from farandole.data_parallel.evaluation import judged_together, mean_of_statistics
from farandole.data_parallel.overlapped import OverlappedSGD
from farandole.data_parallel.training import Strategy
from farandole.errors import UsageError
from farandole.models.layerwise import maker_for
from farandole.runtime.buffers import sha256, trained
from farandole.runtime.communicator import Buffer, Communicator
from farandole.runtime.files import json_text
from farandole.runtime.record import Summary
from farandole.runtime.recorder import Recorder
from farandole.runtime.world import World
from farandole.tasks import Loss


@dataclass(frozen=True)
class Measurement:
    """The measurements of one method by one rank.

    Attributes:
        first: how many batches there were before, of other methods.
        losses: of each step, weighted by this rank's share of it.
        exchanging: seconds of each step, waiting included.
        clock: when each step was done, in seconds of the run.
    """

    method: str
    first: int
    losses: Times
    exchanging: Times
    clock: Times
    wall_s: float
    bytes_sent: int
    model: nn.Module


class Study:
    """One launch's ranks, model and data, on which every method is tried. Every method is collective."""

    def __init__(self, world: World, options: SyncCostOptions, recorder: Recorder) -> None:
        self.world, self.options, self.recorder = world, options, recorder
        self.task = tasks.of(options)
        splits = self.task.data(options.seed)
        self.test = splits.test
        self.shares = equal_shares(len(splits.train), world.size)
        if "large-batch" in options.methods and options.batch * options.period > len(splits.train):
            raise UsageError(
                f"large-batch takes {options.period} times {options.batch} samples a step, and there are "
                f"{len(splits.train)}: give a smaller --batch or --period, or --methods without it"
            )
        shard = shards.distribute("scatter", splits.train, dict(enumerate(self.shares)), world, None, self.task.is_sent)
        self.reader = shard.on(world.device)
        self.model = self.task.model().to(world.device)
        self.makers = {method: maker(method, options) for method in options.methods}
        self.batches_done = self.samples = 0

    def larger(self, method: str) -> int:
        """Return the method's batch size as a multiple of --batch."""
        return self.options.period if method == "large-batch" else 1

    def epoch(self, method: str) -> int:
        """Its steps that use every sample once."""
        return steps_per_epoch(sum(self.shares), self.options.batch * self.larger(method))

    def batches(self, method: str) -> Iterator[Part]:
        """This rank's parts, from the first one on."""
        epoch, rank = self.epoch(method), self.world.rank
        for step, rows in enumerate(EpochSampler(self.shares[rank], epoch, self.options.seed, rank)):
            whole = sum(batch_size(share, epoch, step) for share in self.shares)
            yield self.reader[rows], len(rows) / whole

    def calibrated(self) -> Calibration:
        options, world = self.options, self.world
        length = sum(each.numel() for each in trained(self.model))
        link = calibration.network(world, 4 * length)
        computing: dict[str, Times] = {
            method: calibration.computing(
                world,
                self.makers[method],
                self.model,
                self.task.loss,
                self.batches(method),
                options.calibration_steps,
                link,
            )
            for method in options.methods
        }
        encoded: dict[str, int] = {method: compressor(method, length, options).nbytes(length)
                                   for method in options.methods if method in ("float16", "top-k")}  # fmt: skip
        buckets = self._buckets(link) if "overlapped" in options.methods else []
        return Calibration(link, 4 * length, computing, encoded, buckets, options.period)

    def _buckets(self, link: Link) -> Sequence[tuple[int, float]]:
        """Of each bucket the bytes, and the seconds from a step's begin until the last rank has it."""
        nbytes: list[int] = []
        ready: list[float] = []
        began = 0.0

        def begun() -> None:
            nonlocal began
            began = time.perf_counter()

        def noted(_: Communicator, bucket: Buffer) -> None:
            if began:
                nbytes.append(bucket.nbytes)
                ready.append(time.perf_counter() - began)

        def make(world: World, model: nn.Module, loss: Loss) -> Strategy:
            kilobytes = 1000 * self.options.bucket_kb
            return OverlappedSGD(world, model, loss, maker_for(model, "sgd", self.options.lr), noted, kilobytes)

        steps, batches = self.options.calibration_steps, self.batches("overlapped")
        calibration.computing(self.world, make, self.model, self.task.loss, batches, steps, link, begun)
        slowest = calibration.gathered(self.world, np.array(ready)).max(axis=1).reshape(steps, -1).mean(axis=0)
        return list(zip(nbytes[: len(slowest)], map(float, slowest), strict=True))

    def noise(self) -> NoiseScale | None:
        """Return the noise of the first gradients; None with one rank, or if a batch has fewer samples than ranks."""
        world, options = self.world, self.options
        if world.size == 1 or options.batch < world.size:
            return None
        batches = self.batches("ring")
        steps, lr = options.calibration_steps, options.lr
        return calibration.noise(world, self.model, self.task.loss, batches, steps, options.batch, lr)

    def measured(self, method: str) -> Measurement:
        """Train by this method, and time it."""
        world, larger = self.world, self.larger(method)
        strategy = self.makers[method](world, copy.deepcopy(self.model), self.task.loss)
        steps, batches = self.options.steps // larger, self.batches(method)
        losses, exchanging, clock = np.empty(steps), np.empty(steps), np.empty(steps)
        first, sent_before = self.batches_done, world.comm.bytes_sent
        with world.comm.waiting("the next method", -1):
            world.control.Barrier()
        start = time.perf_counter()
        for step in range(steps):
            world.begin_step(first + step * larger, larger)
            spans = len(world.trace.spans)
            batch, share = next(batches)
            losses[step] = share * strategy.step(batch, share)
            exchanging[step] = calibration.communicating(world.trace.spans[spans:])
            clock[step] = self.recorder.elapsed_s
        wall_s = time.perf_counter() - start
        sent = world.comm.bytes_sent - sent_before
        strategy.finish()
        self.batches_done += steps * larger
        self.samples += samples_used(self.shares, self.options.batch * larger, steps)
        return Measurement(method, first, losses, exchanging, clock, wall_s, sent, strategy.model)

    def row(self, measured: Measurement, known: Calibration) -> Row:
        """Return all ranks' measurements of one method together, beside the prediction; the record gets the losses."""
        world, method, larger = self.world, measured.method, self.larger(measured.method)
        for step, own in enumerate(measured.losses):
            self.recorder.watch(measured.first + step * larger, own)
        losses = calibration.gathered(world, measured.losses).sum(axis=1)
        least = calibration.gathered(world, measured.exchanging).min(axis=1)
        steps = len(losses)
        latest = np.array([measured.wall_s, measured.bytes_sent])
        with world.comm.waiting("measurements of all ranks", -1):
            world.control.Allreduce(MPI.IN_PLACE, latest, MPI.MAX)
        for step, (loss, wall_s) in enumerate(zip(losses, measured.clock, strict=True)):
            first = measured.first + step * larger
            samples = sum(batch_size(share, self.epoch(method), step) for share in self.shares)
            self.recorder.log(step=first, wall_s=float(wall_s), loss=float(loss), samples=samples)
        cost = predicted(method, known, world.size)
        mean_of_statistics(measured.model, world)
        reached = np.flatnonzero(losses <= self.options.goal)
        return Row(
            method=method,
            comm_s=cost.comm_s,
            compute_s=cost.compute_s,
            measured_s=float(latest[0]) / steps / larger,
            measured_comm_s=float(least.mean()) / larger,
            bytes_sent=float(latest[1]) / steps / larger,
            final_loss=float(losses[-1]),
            test_metrics=judged_together(measured.model, self.test, world, self.task),
            steps_to_loss=int(reached[0] + 1) * larger if len(reached) else None,
            efficiency={workers: efficiency(method, known, workers) for workers in (world.size, *self.options.scale)},
        )


def run(scenario: str, options: SyncCostOptions) -> tuple[Summary | None, Findings]:
    """Measure, predict, train by every method, and write the record; the summary on rank 0, None elsewhere.

    The summary's loss, accuracy and parameters are those of the first method; its times and bytes are of all together.
    """
    tasks.of(options)  # refuses a model that cannot read the data before MPI starts
    with World.start(options) as world:
        recorder = Recorder(world, scenario, options)
        study = Study(world, options, recorder)
        check_filled(study.shares, options.batch, options.steps)
        known, noise = study.calibrated(), study.noise()
        world.trace.spans.clear()
        recorder.start()
        measured = [study.measured(method) for method in options.methods]
        recorder.stop()
        rows = [study.row(each, known) for each in measured]
        findings = Findings(known.link.alpha, known.link.beta, known.nbytes, noise, rows)
        recorder.write_beside("costs.json", json_text(findings.to_dict(), indent=2))
        summary = recorder.finish(
            steps=study.batches_done,
            samples=study.samples,
            final_loss=rows[0].final_loss,
            test_metrics=rows[0].test_metrics,
            params_sha256=sha256(measured[0].model),
        )
        return summary, findings
