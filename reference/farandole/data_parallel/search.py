"""Hyper-parameter search (超参数搜索) by successive halving: after each round of trials the better half continues.

    trials     16     8     4     2          each with its learning rate and width
    steps      37    75   150   300          after which the validation loss decides
    ranks      every rank trains some of them alone: rank r those at the positions r, r + P, … of the ranking

Document 000's "different hyper-parameters on different machines" is this (erratum 000.13): copies of one model must
take the same steps, but competing models need not, and their ranks communicate only to compare them. Trials of one
width begin with the same parameters, and all see the same batches. A trial continues where it stopped, possibly on
another rank, to which its parameters are sent.

Cost: about (log₂N + 1)·T steps instead of N·T, for N trials and T steps of the longest; 4 bytes for each parameter of a
trial that moves. A round lasts until its slowest rank is done, and the last rounds have fewer trials than ranks.
Sources: Jamieson & Talwalkar, "Non-stochastic best arm identification and hyperparameter optimization", 2016; Li et
al., "A system for massively parallel hyperparameter tuning", 2020, which does without the waiting.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import inf, isfinite

import numpy as np
import torch
from mpi4py import MPI
from torch import nn

from farandole import tasks
from farandole.data.datasets import Splits
from farandole.data.sampler import EpochSampler, samples_used, steps_per_epoch
from farandole.data.samples import Samples
from farandole.data_parallel.accumulation import backward
from farandole.data_parallel.evaluation import judged_together
from farandole.data_parallel.options import SearchOptions
from farandole.errors import UsageError
from farandole.models.optimizers import SGD
from farandole.runtime.buffers import FlatBuffers, buffers_as_bytes, set_buffers, sha256
from farandole.runtime.files import json_text
from farandole.runtime.record import Summary
from farandole.runtime.recorder import Recorder
from farandole.runtime.world import World


@dataclass(frozen=True)
class Trial:
    """A choice of hyper-parameters, and its result.

    Attributes:
        steps: for which it has been trained.
        loss: on the validation samples then; infinite if it was not a number.
    """

    number: int
    lr: float
    hidden: int
    steps: int = 0
    loss: float = inf


def draw(options: SearchOptions) -> list[Trial]:
    """Return the trials: learning rates uniform on a logarithmic scale around --lr, and one of the widths each.

    Raises:
        UsageError: a model that cannot be so wide.
    """
    if options.task is not None and options.widths:
        raise UsageError("--task brings its own model, whose width is not ours to choose: leave out --widths")
    widths = options.widths or (options.hidden,)
    for width in widths:
        tasks.check_validation(tasks.of(replace(options, hidden=width)))
    trials = []
    for number in range(options.trials):
        noise = np.random.default_rng([options.seed, number])  # the same trial, however many there are
        lr = options.lr * options.spread ** noise.uniform(-1, 1)
        trials.append(Trial(number, float(lr), int(noise.choice(widths))))
    return trials


def rounds(trials: int, steps: int) -> list[tuple[int, int]]:
    """Return for each round its number of trials, and the steps of each trial at its end; the last round has two.

    Raises:
        UsageError: too few steps to be halved as often as the trials.
    """
    sizes = [trials]
    while sizes[-1] > 2:
        sizes.append(-(-sizes[-1] // 2))
    halvings = len(sizes) - 1
    if steps < 2**halvings:
        raise UsageError(
            f"--steps {steps}: too few for {trials} trials, halved {halvings} times: give {2**halvings} or more"
        )
    return [(size, steps >> (halvings - place)) for place, size in enumerate(sizes)]


class Contender:
    """A trial's model, on the rank that trains it."""

    def __init__(self, trial: Trial, options: SearchOptions, splits: Splits[Samples], world: World):
        self.trial = trial
        self.train_set = splits.train.on(world.device)
        self.validation = splits.validation.on(world.device)[np.arange(len(splits.validation))]
        torch.manual_seed(options.seed)
        self.task = tasks.of(replace(options, hidden=trial.hidden))
        self.model = self.task.model().to(world.device)
        self.loss, self.accumulate = partial(self.task.loss, self.model), options.accumulate
        self.flat = FlatBuffers(self.model)
        self.optimizer = SGD(self.flat.values, self.flat.gradients, trial.lr)
        self.epoch = steps_per_epoch(len(splits.train), options.batch)
        self.sampler = EpochSampler(len(splits.train), self.epoch, options.seed, rank=0)

    def train(self, steps: int) -> Trial:
        """Train until `steps` steps are done in all; return the trial with its validation loss."""
        epoch, step = divmod(self.trial.steps, self.epoch)
        self.sampler.restore(self.sampler.state() | {"epoch": epoch, "step": step})
        for _ in range(self.trial.steps, steps):
            self.flat.zero_gradients()
            backward(self.loss, self.train_set[next(self.sampler)], 1.0, self.accumulate)
            self.optimizer.step()
        with torch.no_grad():
            loss = self.loss(self.validation).item()
        self.trial = replace(self.trial, steps=steps, loss=loss if isfinite(loss) else inf)
        return self.trial


class Search:
    """All trials that still run, of which this rank trains its own.

    Attributes:
        ranking: the trials of this round, the best first; the same on all ranks.
        done: each trial's result, by its number.
    """

    def __init__(self, world: World, options: SearchOptions) -> None:
        self.world, self.options = world, options
        self.ranking = draw(options)
        self.plan = rounds(options.trials, options.steps)
        self.done = {trial.number: trial for trial in self.ranking}
        self.task = tasks.of(options)
        self.splits = self.task.data(options.seed)
        self.owner: dict[int, int] = {}  # of each trial in this round
        self.own: dict[int, Contender] = {}

    def run(self) -> Iterator[int]:
        """Run all rounds; yield after each the number of steps that its trials have taken. Collective."""
        for number in self.world.steps(len(self.plan)):
            size, steps = self.plan[number]
            self._deal(self.ranking[:size])
            with self.world.compute("trials"):
                judged = {number: contender.train(steps) for number, contender in self.own.items()}
            losses = np.full(len(self.done), inf)
            losses[list(judged)] = [trial.loss for trial in judged.values()]
            with self.world.comm.waiting("losses of all trials", -1), self.world.communicate("comparison"):
                self.world.control.Allreduce(MPI.IN_PLACE, losses, MPI.MIN)
            seen = [replace(self.done[number], steps=steps, loss=float(losses[number])) for number in self.owner]
            self.ranking = sorted(seen, key=lambda trial: (trial.loss, trial.number))
            self.done |= {trial.number: trial for trial in seen}
            yield steps

    def used(self, trial: Trial) -> int:
        """Return the number of samples that the trial has used, each counted as often as it was used."""
        return samples_used([len(self.splits.train)], self.options.batch, trial.steps)

    def winner(self) -> nn.Module:
        """Return the best trial's model, on every rank. Collective."""
        best = self.ranking[0]
        contender = self.own.get(best.number) or Contender(best, self.options, self.splits, self.world)
        contender.flat.values_to_host()
        with self.world.comm.waiting("the best model", self.owner[best.number]):
            self.world.control.Bcast(contender.flat.values_np, self.owner[best.number])
            statistics = buffers_as_bytes(contender.model)
            for part in statistics.values():
                self.world.control.Bcast(part.numpy(), self.owner[best.number])
        contender.flat.values_from_host()
        set_buffers(contender.model, statistics)
        return contender.model

    def _deal(self, trials: Sequence[Trial]) -> None:
        """Assign these trials to the ranks, and move their parameters there; all other trials end."""
        here, before = self.world.rank, self.owner
        self.owner = {trial.number: place % self.world.size for place, trial in enumerate(trials)}
        for trial in trials:
            if self.owner[trial.number] == here and trial.number not in self.own:
                self.own[trial.number] = Contender(trial, self.options, self.splits, self.world)
        with self.world.communicate("trials that move"):
            for number, now in self.owner.items():  # in the same order on all ranks, so there is no deadlock
                self._move(number, before.get(number, now), now)
        self.own = {number: each for number, each in self.own.items() if self.owner.get(number) == here}

    def _move(self, number: int, before: int, now: int) -> None:
        if before != now and self.world.rank in (before, now):
            flat, model = self.own[number].flat, self.own[number].model
            statistics = buffers_as_bytes(model)
            if self.world.rank == before:
                flat.values_to_host()
                self.world.comm.send(flat.values_np, now)
                for part in statistics.values():
                    self.world.comm.send(part.numpy(), now)
            else:
                self.world.comm.receive(flat.values_np, before)
                for part in statistics.values():
                    self.world.comm.receive(part.numpy(), before)
                flat.values_from_host()
                set_buffers(model, statistics)


def run(scenario: str, options: SearchOptions) -> tuple[Summary | None, list[Trial]]:
    """Search, judge the best trial on the test samples, and write the record.

    Returns:
        The summary on rank 0, None elsewhere; all trials, sorted by their number of steps and then by their loss.
    """
    draw(options)  # wrong options are reported before anything begins
    rounds(options.trials, options.steps)
    with World.start(options) as world:
        recorder = Recorder(world, scenario, options)
        search = Search(world, options)
        recorder.start()
        samples = 0
        for steps in search.run():
            before, samples = samples, sum(search.used(trial) for trial in search.done.values())
            best = search.ranking[0]
            recorder.log(step=steps - 1, wall_s=recorder.elapsed_s, loss=best.loss, samples=samples - before)
        recorder.stop()
        trials = sorted(search.done.values(), key=lambda trial: (-trial.steps, trial.loss, trial.number))
        recorder.write_beside("trials.json", json_text([asdict(trial) for trial in trials], indent=2))
        model = search.winner()
        summary = recorder.finish(
            steps=options.steps,
            samples=samples,
            final_loss=search.ranking[0].loss,
            test_metrics=judged_together(model, search.splits.test, world, search.task),
            params_sha256=sha256(model),
        )
        return summary, trials
