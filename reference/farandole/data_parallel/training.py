"""The training that all data-parallel methods share: shards, the loop over steps, the record, the evaluation.

A method is a `Strategy`: it owns the model and takes one step. Everything else is the same for all methods, so that a
difference between two records is a difference between the methods.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
from torch import Tensor, nn

from farandole import tasks
from farandole.collectives.all_reduce import ALL_REDUCES
from farandole.data import shards
from farandole.data.batch import Batch
from farandole.data.read_ahead import ahead
from farandole.data.sampler import EpochSampler, batch_size, check_filled, samples_used, steps_per_epoch
from farandole.data.samples import Samples
from farandole.data.stream import Stream, described, in_batches
from farandole.data_parallel import accumulation
from farandole.data_parallel.background_metrics import BackgroundLossLog
from farandole.data_parallel.evaluation import judged_together
from farandole.data_parallel.learning_rate import LearningRate
from farandole.data_parallel.loss_log import LossLog, Observation
from farandole.data_parallel.options import LoopOptions, OptimizerOptions
from farandole.errors import UsageError
from farandole.models.layerwise import maker_for
from farandole.models.optimizers import MakeOptimizer
from farandole.runtime.buffers import mean_statistics, sha256, trained
from farandole.runtime.files import json_text
from farandole.runtime.progress import progress
from farandole.runtime.record import Summary
from farandole.runtime.recorder import Recorder
from farandole.runtime.stop_request import StopRequest
from farandole.runtime.world import World
from farandole.tasks import Loss


class Strategy(Protocol):
    """One way of taking steps together.

    Every strategy is made of a `World`, this rank's copy of the model and the task's loss (model, batch → its mean
    loss, 0 for an empty part), and of what the method itself needs.

    Attributes:
        model: this rank's copy.
        optimizer: what moves it; one of ours lets its `lr` be changed between two steps.
        bytes_are_counted: False where a library communicates on its own.
        ring_bytes: where gradients are compressed, what a ring all-reduce would have sent so far without.
        needs_samples: whether every rank must have a sample in each step.
        accumulate: micro-batches of a step, each with a forward and a backward pass (`accumulation`).
    """

    model: nn.Module
    loss: Loss
    optimizer: Any
    bytes_are_counted: bool
    ring_bytes: int | None = None
    needs_samples: bool = False
    accumulate: int = 1

    def step(self, batch: Batch, share: float) -> float:
        """Take one step on this rank's part of the batch.

        Args:
            batch: this part.
            share: this part's share of the whole batch, 0 to 1; the shares of all ranks sum to 1.

        Returns:
            The mean loss over this rank's part (0 for an empty one).
        """
        ...

    def backward(self, batch: Batch, weight: float) -> Tensor:
        """Add `weight` times the gradient of the mean loss over `batch` to the gradients; return the mean loss."""
        return accumulation.backward(partial(self.loss, self.model), batch, weight, self.accumulate)

    def observe(self) -> Observation | None:
        """Return what the record is to contain now beside the loss, or None. Called once in a window of steps.

        It must keep a copy of what it needs: the ranks evaluate it together, perhaps while training goes on.
        """
        return None  # equal copies have nothing to observe

    def finish(self) -> None:
        """Make `model` the trained model, after the last step. Collective."""
        return  # for most strategies it is already

    def memory(self) -> dict[str, dict[str, int | None]] | None:
        """Return the bytes that this rank has held, "measured" and by "formula" (`Summary.memory`), or None."""
        return None  # every rank has held the whole model


MakeStrategy = Callable[[World, nn.Module, Loss], Strategy]


def optimizer_factory(options: OptimizerOptions, model: nn.Module) -> MakeOptimizer:
    """Return a function that makes the optimizer named by the options: (parameters, gradients) → optimizer.

    Args:
        model: of which LARS and LAMB need to know the layers.
    """
    return maker_for(model, options.optimizer, options.lr, options.l2, options.weight_decay)


@dataclass(frozen=True)
class Outcome:
    """The results that a training's loop reports to the record.

    Attributes:
        final_loss: of the last step.
        steps, samples: their numbers, of all ranks together.
        staleness, lead: histograms, where these have a meaning.
    """

    final_loss: float
    steps: int
    samples: int
    staleness: dict[str, int] | None = None
    lead: dict[str, int] | None = None


class Loop(Protocol):
    """Takes all steps of a training: `synchronous_loop`, or `decentralised.asynchronous.asynchronous_loop`."""

    def __call__(
        self,
        world: World,
        options: LoopOptions,
        strategy: Strategy,
        shard: Samples,
        shares: list[int],
        recorder: Recorder,
        rate: LearningRate | None,
        stop: StopRequest,
    ) -> Outcome: ...


def train(
    scenario: str,
    options: LoopOptions,
    make_strategy: MakeStrategy,
    loop: Loop | None = None,
) -> Summary | None:
    """Train, evaluate and write the record; return the summary on rank 0, None elsewhere.

    After a SIGUSR1 to any rank the training ends within `2 * LOSS_WINDOW` steps, and is evaluated and recorded.

    Args:
        options: those of an optimizer also give the learning rate of each step.
        loop: takes the steps; None: `synchronous_loop`.

    Raises:
        UsageError: the options do not fit each other, the model or the number of ranks.
    """
    task = tasks.of(options)
    if options.export:
        tasks.criterion_of(task, "an exported model is given inputs alone")
    rate = LearningRate.of(options) if isinstance(options, OptimizerOptions) else None
    with World.start(options) as world:
        stop = StopRequest(world)
        recorder = Recorder(world, scenario, options)
        splits = task.data(options.seed) if world.rank == 0 or not task.is_sent else None
        everything = in_batches(splits.train, options.batch, world.size) if splits else None
        count = np.array([len(everything) if everything is not None else 0])
        world.control.Bcast(count)
        shares = options.shares(int(count[0]), world.size)
        accumulation.check_micro_batches(shares, options.batch, options.steps, options.accumulate)
        if isinstance(everything, Stream):
            recorder.write_beside("stream.json", json_text(described(everything, shares)))
        own, folder = dict(enumerate(shares)), recorder.shard_folder
        shard = shards.distribute(options.loading, everything, own, world, folder, task.is_sent)
        model = task.model().to(world.device)
        if not trained(model):
            raise UsageError("the model has no parameter to train: set requires_grad=True for at least one")
        strategy = make_strategy(world, model, task.loss)
        strategy.accumulate = options.accumulate
        if not strategy.bytes_are_counted:
            world.comm.refuse("a library")
        outcome = (loop or synchronous_loop)(world, options, strategy, shard, shares, recorder, rate, stop)
        if automatic := world.comm.kept.get("automatic"):
            recorder.write_beside("collective.json", json_text(automatic.figures()))
        mean_statistics(strategy.model, lambda sums: ALL_REDUCES["ring"](world.comm, sums), world.size)
        summary = recorder.finish(
            steps=outcome.steps,
            samples=outcome.samples,
            final_loss=outcome.final_loss,
            test_metrics=judged_together(strategy.model, splits.test if splits else None, world, task),
            params_sha256=sha256(strategy.model),
            bytes_are_counted=strategy.bytes_are_counted,
            staleness=outcome.staleness,
            lead=outcome.lead,
            ring_bytes=strategy.ring_bytes,
            memory=strategy.memory(),
        )
        if options.export and recorder.folder and summary:
            from farandole.data_parallel.export import write  # loads torch's compiler

            try:
                inputs, _ = shard.on(world.device)[np.arange(2)]
                write(strategy.model, inputs, recorder.folder)
            except OSError as error:
                return summary.without(error)
        return summary


def synchronous_loop(
    world: World,
    options: LoopOptions,
    strategy: Strategy,
    shard: Samples,
    shares: list[int],
    recorder: Recorder,
    rate: LearningRate | None,
    stop: StopRequest,
) -> Outcome:
    """Take all steps, each on all ranks."""
    check_filled(shares, options.batch, options.steps, strategy.needs_samples)
    epoch = steps_per_epoch(sum(shares), options.batch)
    sampler = EpochSampler(len(shard), epoch, options.seed, world.rank)
    reader = ahead(shard.on(world.device), copy(sampler), options.seed, world.rank)
    log = BackgroundLossLog if options.background_metrics else LossLog
    losses = log(world, recorder, options.steps, observe=strategy.observe)
    following = 0
    recorder.start()
    for step in progress(world.steps(options.steps), options.steps, world.rank):
        rows = next(sampler)
        whole = sum(batch_size(share, epoch, step) for share in shares)
        share = len(rows) / whole
        if rate:
            strategy.optimizer.lr = rate.at(step)
        loss = strategy.step(reader[rows], share)
        losses.add(step, loss, share, whole, **({"lr": strategy.optimizer.lr} if rate else {}))
        following = step + 1
        if losses.following == following:  # the ranks have just exchanged their losses
            if rate:
                rate.observe(losses.last_mean)
            if stop.heard():
                break
    strategy.finish()
    stop.complete()
    losses.finish()
    recorder.stop()
    return Outcome(losses.last, following, samples_used(shares, options.batch, following))
