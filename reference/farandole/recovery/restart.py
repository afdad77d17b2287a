"""Restart recovery (重启恢复): when a rank dies the job ends, and its next start goes on from the last checkpoint.

Document 000 restarts the process that has left; under MPI the whole job is one, so all ranks start
again. What is lost is the work since the last checkpoint and the time to start: the price of a
method that needs nothing of the survivors, not even that there are any.

    start       find the newest complete checkpoint; if there is one, put everything back to it
    each step   train; every so often save
    told to stop (SIGUSR1)   save, and end so that the next start goes on from here

With as many ranks as before the parameters end bitwise equal to those of an uninterrupted run. With
another number the state is cut anew, and every sample is still used exactly once per epoch. Who
starts the job again: `farandole supervise`, Slurm (``--requeue``), or the reader.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from farandole.data_parallel.evaluation import accuracy
from farandole.data_parallel.loss_log import LossLog
from farandole.data_parallel.training import samples_used
from farandole.models import choices
from farandole.recovery.batches import Batches
from farandole.recovery.checkpoint_protection import CheckpointProtection
from farandole.recovery.event_log import EventLog, RankWitness
from farandole.recovery.options import ResumableOptions
from farandole.recovery.replica import Replica
from farandole.runtime.buffers import sha256
from farandole.runtime.communicator import broadcast_text
from farandole.runtime.failure import Interrupted
from farandole.runtime.progress import progress
from farandole.runtime.record import Summary
from farandole.runtime.recorder import Recorder
from farandole.runtime.stop_request import StopRequest
from farandole.runtime.world import World


class Restartable:
    """A data-parallel training that begins where an earlier start has saved it. Collective, in all it does."""

    def __init__(self, world: World, scenario: str, options: ResumableOptions) -> None:
        self.world, self.options = world, options
        self.stop = StopRequest(world)
        self.recorder = Recorder(world, scenario, options)
        self.folder = Path(broadcast_text(world.control, str(self.recorder.folder)))
        self.event_log = EventLog(self.folder / "logbook.jsonl")
        world.witness = RankWitness(self.event_log, world.rank)
        world.spare(self.event_log.struck())
        world.starts_before = self.event_log.starts()
        self.batches = Batches(world, options, self.folder, world.size)
        self.replica = Replica(world, options)
        self.protection = CheckpointProtection(self)
        self.step = self.first_step = self.protection.restore()
        self.batches.go_to(self.step)
        self.recorder.go_on_from(self.step)
        self.losses = LossLog(world, self.recorder, options.steps, self.first_step)

    def run(self) -> int:
        """Take all steps that are left; returns the step to take next, fewer than all if it was told to stop."""
        steps, world = self.options.steps, self.world
        self.recorder.start(self._begin())
        self.protection.begin()
        for step in progress(world.steps(steps, self.first_step), steps - self.first_step, world.rank):
            self._step(step)
            if step == self.first_step and world.rank == 0:
                self.event_log.write("first step", 0, step)
            self.step = step + 1
            stop = self.stop.heard()
            if stop and self.step < steps:
                self.protection.protect_now()
                break
            if self.step < steps:
                self.protection.protect(self.step)
        self.stop.complete()
        self.protection.secure()
        if self.step < steps and world.rank == 0:
            self.event_log.write("stop", 0, self.step)
        self.recorder.stop()
        return self.step

    def finish(self) -> Summary | None:
        """Evaluate, and write the record; the summary on rank 0, None elsewhere."""
        return self.recorder.finish(
            steps=self.options.steps,
            samples=samples_used(self.batches.data.shares, self.options.batch, self.options.steps),
            final_loss=self.losses.last,
            test_accuracy=self._accuracy(),
            params_sha256=sha256(self.replica.model),
            faults=self.event_log.faults() if self.world.rank == 0 else (),
        )

    def _step(self, step: int) -> None:
        inputs, targets, whole = self.batches.next_part(self.world.rank, self.world.size)
        share = len(inputs) / whole
        self.losses.add(step, self.replica.step(inputs, targets, share), share, whole)

    def _accuracy(self) -> float | None:
        if self.world.rank:
            return None
        return accuracy(self.replica.model, self.batches.splits.test, self.world.device)

    def _begin(self) -> float:
        """Note the start; returns how many seconds ago the first one was."""
        self.world.control.Barrier()  # the record's clock begins when all ranks are there
        before_s = np.zeros(1)
        if self.world.rank == 0:
            self.event_log.write("start", 0, self.first_step)
            before_s[0] = time.time() - self.event_log.lines()[0].when
        self.world.control.Bcast(before_s)
        return float(before_s[0])


def train(scenario: str, options: ResumableOptions) -> Summary | None:
    """Train to the end, from wherever an earlier start has come to; the summary on rank 0, None elsewhere.

    Raises:
        Interrupted: told to stop, and saved.
    """
    choices.check(options)
    with World.start(options) as world:
        training = Restartable(world, scenario, options)
        following = training.run()
        if following == options.steps:
            return training.finish()
    raise Interrupted(f"stopped as asked, saved before step {following}: the same command goes on from there")
