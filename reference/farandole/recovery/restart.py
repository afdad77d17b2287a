"""Restart recovery (重启恢复): when a rank dies the job ends, and its next start continues from the last checkpoint.

Document 000 restarts the process that has left. Under MPI the whole job is one, so all ranks start again. What is
lost is the work since the last checkpoint, and the time to start. In return the method needs no survivors.

    start                    find the newest complete checkpoint; if there is one, restore it
    each step                train; at intervals save (`checkpoint_protection`)
    asked to stop (SIGUSR1)  save, and end so that the next start continues from here

With as many ranks as before the parameters end bitwise equal to those of an uninterrupted run. With
another number the state is cut anew, and every sample is still used exactly once per epoch. The job is started
again by `farandole supervise`, by Slurm (``--requeue``), or by hand.

Cost: without a failure a copy of the state in memory for each checkpoint. A failure costs the work since the last
checkpoint, the start of all ranks and the reading of the state.
"""

from __future__ import annotations

import time

import numpy as np

from farandole import tasks
from farandole.recovery.batches import Batches
from farandole.recovery.checkpoint_protection import CheckpointProtection
from farandole.recovery.data_parallel import DataParallel
from farandole.recovery.options import ResumableOptions
from farandole.recovery.protected_training import ProtectedTraining
from farandole.recovery.protection import Stopped
from farandole.recovery.training_record import TrainingRecord
from farandole.runtime.failure import Interrupted
from farandole.runtime.record import Summary
from farandole.runtime.stop_request import StopRequest
from farandole.runtime.world import World


def train(scenario: str, options: ResumableOptions) -> Summary | None:
    """Train to the end, from the last checkpoint of an earlier start; return the summary on rank 0, None elsewhere.

    Raises:
        Interrupted: the training was asked to stop, and its state is saved.
        UsageError: the folder's checkpoint is of another training.
    """
    tasks.of(options)  # refuses a model that cannot read the data
    with World.start(options) as world:
        stop = StopRequest(world)
        record = TrainingRecord(world, scenario, options)
        world.spare(record.event_log.struck())
        world.starts_before = record.event_log.starts()
        worker = DataParallel(record, options, Batches(world, options, record.folder, world.size))
        protection = CheckpointProtection(record, worker, options, stop)
        training = ProtectedTraining(record, worker, protection)
        training.restore()
        record.recorder.start(_seconds_before(record))
        try:
            training.take_steps()
            return training.finish()
        except Stopped:
            record.note("stop", training.step)
    raise Interrupted(f"stopped as asked, saved before step {training.step}: the same command goes on from there")


def _seconds_before(record: TrainingRecord) -> float:
    """Return how many seconds ago the first start was, 0 at the first start; the same on all ranks. Collective."""
    before_s = np.zeros(1)
    if record.leads and record.world.starts_before:
        before_s[0] = time.time() - record.event_log.lines()[0].when
    record.world.control.Bcast(before_s)
    return float(before_s[0])
