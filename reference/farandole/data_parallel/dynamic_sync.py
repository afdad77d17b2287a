"""Training whose rounds a controller plans from the times of the rounds before.

A round is one of synchronisation-agnostic SGD (`agnostic`, whose normalised rule makes unequal numbers of steps
harmless): rank r takes the τ_r steps of its plan on samples of its share, and all combine. Then the ranks exchange
their measurements, and every rank's controller (`controller`) makes the same next plan from the same numbers.

    period fixed, not balanced    local SGD with equal batches
    period 1, not balanced        synchronous SGD

Cost: that of `agnostic`, and an all-reduce of 2P numbers a round by doubling, ⌈log₂ P⌉ messages of 16P bytes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import torch
from mpi4py import MPI
from numpy.typing import NDArray
from torch import nn

from farandole import tasks
from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.data import label_skew
from farandole.data.batch import Batch
from farandole.data.samples import Samples
from farandole.data_parallel.agnostic import AgnosticSGD
from farandole.data_parallel.controller import Controller
from farandole.data_parallel.evaluation import judged_together, mean_of_statistics
from farandole.data_parallel.options import DynamicOptions
from farandole.errors import UsageError
from farandole.runtime.buffers import sha256
from farandole.runtime.record import Summary
from farandole.runtime.recorder import Recorder
from farandole.runtime.world import World
from farandole.tasks import Task

LOSS_EVERY = 16  # steps, at least, from one measurement of the loss to the next


def train(scenario: str, options: DynamicOptions) -> Summary | None:
    """Train, evaluate and write the record; return the summary on rank 0, None elsewhere.

    A step of the record is one step of every rank, on average. The loss is that of the common parameters over all
    training samples, before the round that the line describes; the last line describes the round after the last. The
    seconds in the metrics are without those of measuring the loss; the summary's include them.
    """
    task = tasks.of(options)
    with World.start(options) as world:
        recorder = Recorder(world, scenario, options)
        splits = task.data(options.seed)
        rows = _rows(task, splits.train, options, world)
        reader = splits.train[rows].on(world.device)
        own = reader[np.arange(len(rows))]
        share = len(rows) / len(splits.train)
        order = Order(len(rows), options.seed, world.rank)
        size = max(1, options.batch // world.size)
        if options.accumulate > size:
            raise UsageError(
                f"--accumulate {options.accumulate}: a rank's step has {size} samples: give {size} or less"
            )
        model = task.model().to(world.device)
        method = AgnosticSGD(world, model, task.loss, options.lr, 1.0, size, True, ALL_REDUCES[options.collective])
        method.accumulate = options.accumulate
        controller = Controller(world.size, options.period, not options.equal_steps, options.kappa, options.longest)
        done = used = loss_due = 0
        loss = measuring_s = 0.0
        recorder.start()
        while True:
            plan, over = controller.plan, done >= options.steps
            if over or done >= loss_due:
                trained = recorder.elapsed_s
                loss = common_loss(world, task, model, own, share)
                loss_due = done + LOSS_EVERY
                most, fewest = max(plan.steps), min(plan.steps)
                figures = {"loss": loss, "period": plan.period, "most_steps": most, "fewest_steps": fewest}
                recorder.log(step=done, wall_s=trained - measuring_s, **figures)
                measuring_s += recorder.elapsed_s - trained
            if over:
                break
            world.begin_step(done, plan.period)
            taken = order.take(plan.steps[world.rank] * size)
            start = time.perf_counter()
            own_loss, length = method.own_steps(reader[taken])
            recorder.watch(done, own_loss)
            ready = time.perf_counter()
            method.combine(share, length)
            end = time.perf_counter()
            controller.observe(*told_to_all(world, (ready - start) / plan.steps[world.rank], end - ready))
            done += plan.period
            used += sum(plan.steps) * size
        recorder.stop()
        mean_of_statistics(model, world)
        return recorder.finish(
            steps=done,
            samples=used,
            final_loss=loss,
            test_metrics=judged_together(model, splits.test, world, task),
            params_sha256=sha256(model),
        )


class Order:
    """The order in which a rank uses its share: shuffled anew whenever it is used up."""

    def __init__(self, share: int, seed: int, rank: int) -> None:
        self._endless = self._numbers(share, seed, rank)

    def take(self, count: int) -> NDArray[np.intp]:
        return np.fromiter(self._endless, np.intp, count)

    @staticmethod
    def _numbers(share: int, seed: int, rank: int) -> Iterator[int]:
        noise = np.random.default_rng([seed, rank])
        while True:
            yield from noise.permutation(share).tolist()


def told_to_all(world: World, *own: float) -> NDArray[np.float64]:
    """Return all ranks' numbers: a row for each number, a column for each rank. Collective."""
    table = np.zeros((len(own), world.size))
    table[:, world.rank] = own
    with world.communicate("measurements"):
        ALL_REDUCES["doubling"](world.comm, table.reshape(-1))
    return table


def common_loss(world: World, task: Task, model: nn.Module, own: Batch, share: float) -> float:
    """Return the mean loss over all ranks' samples. Collective, and not counted, since it is for the record."""
    with world.trace.span("loss", "compute"), torch.no_grad():
        total = np.array([share * task.loss(model, own).item()])
    with world.comm.waiting("sum of losses", -1):
        world.control.Allreduce(MPI.IN_PLACE, total)
    return float(total[0])


def _rows(task: Task, train: Samples, options: DynamicOptions, world: World) -> label_skew.Rows:
    """Return this rank's training samples, as row numbers."""
    if world.size > len(train):
        raise UsageError(f"{len(train)} samples are too few for {world.size} ranks: use at most {len(train)}")
    classes = tasks.classes_of(task, train, options.concentration)
    return label_skew.divide(classes, world.size, options.concentration, options.seed)[world.rank]
