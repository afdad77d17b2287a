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

import sys
import time
import uuid
from pathlib import Path

import numpy as np
from mpi4py import MPI

from farandole.data_parallel.evaluation import accuracy
from farandole.data_parallel.loss_log import LossLog
from farandole.data_parallel.training import samples_used
from farandole.errors import UsageError
from farandole.models import choices
from farandole.recovery import checkpoint
from farandole.recovery.batches import Batches
from farandole.recovery.checkpointer import Checkpointer, newest_slot
from farandole.recovery.event_log import EventLog, RankWitness
from farandole.recovery.interval import Cadence
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
        self.number = broadcast_text(world.control, uuid.uuid4().hex)
        self.event_log = EventLog(self.folder / "logbook.jsonl")
        world.witness = RankWitness(self.event_log, world.rank)
        world.spare(self.event_log.struck())
        world.starts_before = self.event_log.starts()
        self.batches = Batches(world, options, self.folder, world.size)
        self.replica = Replica(world, options)
        slot = self._go_back()
        self.checkpointer = Checkpointer(
            world,
            self.folder / checkpoint.CHECKPOINTS,
            by=options.checkpoint_by,
            asynchronous=options.checkpoint_async,
            occupied=slot,
        )
        self.losses = LossLog(world, self.recorder, options.steps, self.first_step)

    def run(self) -> int:
        """Take all steps that are left; returns the step to take next, fewer than all if it was told to stop."""
        options, world = self.options, self.world
        cadence = Cadence(options.checkpoint_every, options.mtbf)
        self.recorder.start(self._begin())
        since, since_s = self.first_step, self.recorder.elapsed_s
        for step in progress(world.steps(options.steps, self.first_step), options.steps - self.first_step, world.rank):
            self._step(step)
            if step == self.first_step and world.rank == 0:
                self.event_log.write("first step", 0, step)
            following = step + 1
            stop = self.stop.heard()
            if following < options.steps and (stop or cadence.due(following - since)):
                self.losses.flush(following)
                step_s = (self.recorder.elapsed_s - since_s) / (following - since)
                state = self.replica.state(following)
                state.values["start"] = self.number  # parts that different starts have written do not fit together
                cost_s = self.checkpointer.save(state)
                cadence.measured(cost_s, self._slowest(step_s))
                since, since_s = following, self.recorder.elapsed_s
                if world.rank == 0:
                    self.event_log.write("checkpoint", 0, following)
                if stop:
                    break
        self.stop.complete()
        self.checkpointer.finish()
        if following < options.steps and world.rank == 0:
            self.event_log.write("stop", 0, following)
        self.recorder.stop()
        return following

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

    def _go_back(self) -> int | None:
        """Put everything back to the newest complete checkpoint; returns its slot, None if there is none."""
        folder = self.folder / checkpoint.CHECKPOINTS
        slot = newest_slot(self.world, folder)
        self.first_step = 0
        if slot is not None:
            saved = checkpoint.read(folder, slot)
            if saved.step >= self.options.steps:
                raise UsageError(
                    f"the checkpoint in slot-{slot} is of step {saved.step}, and of another training: this one has "
                    f"{self.options.steps} steps; put back the folder's own checkpoints, or give another --out"
                )
            self.replica.restore(saved)
            self.first_step = saved.step
            if self.world.rank == 0:
                print(f"goes on from step {saved.step}, saved in {folder / f'slot-{slot}'}", file=sys.stderr)
        self.batches.go_to(self.first_step)
        self.recorder.go_on_from(self.first_step)
        return slot

    def _begin(self) -> float:
        """Note the start; returns how many seconds ago the first one was."""
        self.world.control.Barrier()  # the record's clock begins when all ranks are there
        before_s = np.zeros(1)
        if self.world.rank == 0:
            self.event_log.write("start", 0, self.first_step)
            before_s[0] = time.time() - self.event_log.lines()[0].when
        self.world.control.Bcast(before_s)
        return float(before_s[0])

    def _slowest(self, seconds: float) -> float:
        longest = np.array([seconds])
        with self.world.comm.waiting("time of a step", -1):
            self.world.control.Allreduce(MPI.IN_PLACE, longest, MPI.MAX)
        return float(longest[0])


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
