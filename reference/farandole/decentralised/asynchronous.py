"""The training loop without common steps: a rank that is ready takes the next iteration.

It replaces `data_parallel.training.synchronous_loop`. A thread adds up the losses, and no rank waits for it. Each rank
records the losses of its iterations, and contributes its part of a window of steps when its
next iteration belongs to a later window. A line of the record is about P iterations, with as many samples as a batch,
to rounding; its time is that of the last of them. The consensus error is of copies, of which each rank makes one when
it leaves the window.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace

import numpy as np
from mpi4py import MPI

from farandole.data.read_ahead import ahead
from farandole.data.sampler import EpochSampler, batch_size, check_filled, steps_per_epoch
from farandole.data.samples import Samples
from farandole.data_parallel.background_metrics import BackgroundLossLog
from farandole.data_parallel.learning_rate import LearningRate
from farandole.data_parallel.loss_log import LOSS_WINDOW, Noted, Observation
from farandole.data_parallel.options import LoopOptions
from farandole.data_parallel.training import Outcome, Strategy
from farandole.decentralised.iteration_server import IterationServer
from farandole.decentralised.iterations import NONE_LEFT
from farandole.runtime.recorder import Recorder
from farandole.runtime.stop_request import StopRequest
from farandole.runtime.world import World


class UnevenLossLog(BackgroundLossLog):
    """A loss log for steps in which a rank has no iteration, one or several.

    Args:
        rate: returns the learning rate of a step, for any rank.
    """

    def __init__(
        self,
        world: World,
        recorder: Recorder,
        steps: int,
        observe: Callable[[], Observation | None],
        rate: LearningRate | None,
    ) -> None:
        super().__init__(world, recorder, steps, observe)
        self.rate = rate

    def add(self, step: int, loss: float, share: float, samples: int, **also: float) -> None:
        """Record an iteration."""
        if share:
            self.recorder.watch(step, loss)
        before = self._noted.get(step, Noted(0.0, 0.0, 0.0, samples))
        weighted = before.weighted_loss + loss * share
        self._noted[step] = Noted(weighted, before.share + share, self.recorder.elapsed_s, samples, also)

    def _own(self, steps: range) -> list[Noted]:
        noted = super()._own(steps)
        if not self.rate:
            return noted
        return [replace(each, also={"lr": self.rate.at(step)}) for step, each in zip(steps, noted, strict=True)]

    def reach(self, step: int) -> None:
        """Declare that this rank has no further iteration of a step before `step`; return at once."""
        while self.following + LOSS_WINDOW <= step:
            self.flush(self.following + LOSS_WINDOW)


def asynchronous_loop(
    world: World,
    options: LoopOptions,
    strategy: Strategy,
    shard: Samples,
    shares: list[int],
    recorder: Recorder,
    rate: LearningRate | None,
    stop: StopRequest,
) -> Outcome:
    """Take all iterations; a slow rank takes fewer of them."""
    check_filled(shares, options.batch, options.steps * world.size)  # the fastest rank may take nearly all of them
    epoch = steps_per_epoch(sum(shares), options.batch)
    sampler = EpochSampler(len(shard), epoch, options.seed, world.rank)
    reader = ahead(shard.on(world.device), copy(sampler), options.seed, world.rank)
    losses = UnevenLossLog(world, recorder, options.steps, strategy.observe, rate)
    work = IterationServer(world, options.steps * world.size)
    own = samples = 0
    recorder.start()
    while (number := work.next(stop.asked)) != NONE_LEFT:
        step = number // world.size
        losses.reach(step)
        world.begin_step(own)
        rows = next(sampler)
        whole = sum(batch_size(each, epoch, own) for each in shares)  # if all were as far as this rank
        share = len(rows) / whole
        if rate:
            strategy.optimizer.lr = rate.at(step)
        loss = strategy.step(reader[rows], share)
        losses.add(step, loss, share, whole)
        own, samples = own + 1, samples + len(rows)
    steps = -(-work.begun // world.size)
    losses.reach(steps)
    if losses.following < steps:
        losses.flush(steps)
    strategy.finish()
    work.close()
    losses.finish()
    recorder.stop()
    total = np.array([samples])
    world.control.Allreduce(MPI.IN_PLACE, total)
    counted = work.iterations
    return Outcome(losses.last, steps, int(total[0]), _histogram(counted.staleness), _histogram(counted.lead))


def _histogram(counts: dict[int, int]) -> dict[str, int]:
    return {str(value): counts[value] for value in sorted(counts)}
