"""Backup recovery (备份恢复): a dead rank's state is restored from a copy in its buddy's memory.

Document 000 keeps parameters and intermediate results on several nodes, and restores a node's state from its backup.
Here every k steps each worker sends a copy of its own state to the next worker in the ring (`buddies`): the state of
its random generators, its parts of the last losses, and its part of a divided optimizer (ZeRO-1). When a worker dies,
all go back to the last backup, and a spare takes its slot with exactly its state: the run ends bitwise equal to an
undisturbed one. Without a spare the others divide its work and its part of the optimizer.

    lost        at most k steps, which are repeated; before the second backup training restarts
    two deaths  of a worker and its buddy at once: from the last checkpoint on disk

Cost per backup: a copy in memory of 2/P of the state that P workers share, and of each one's own state, which is also
sent to one other worker while the step is computed. `membership` forms the new group of workers.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Protocol

import numpy as np
import torch
from mpi4py import MPI

from farandole.data_parallel.loss_log import LOSS_WINDOW, LossLog
from farandole.errors import UsageError
from farandole.recovery import data_parallel
from farandole.recovery.buddies import IN_MEMORY, Buddies
from farandole.recovery.checkpoint import Checkpoint
from farandole.recovery.membership import Membership
from farandole.recovery.on_disk import OnDisk
from farandole.recovery.options import BackupOptions, KeepingOptions
from farandole.recovery.protection import NOT_STARTED, Unrecoverable
from farandole.recovery.state import TrainingState
from farandole.recovery.training_record import TrainingRecord
from farandole.runtime.record import Summary

LOSSES = "losses"


class Restorable(Protocol):
    """A model that can be put back to a step of its training (`replica`)."""

    def state(self, step: int) -> TrainingState: ...

    def restore(self, saved: Checkpoint) -> None: ...

    def rewind(self, step: int) -> None: ...


class Worker(Protocol):
    """A protected training: a `DataParallel`, or the user's own loop (`own_loop.backup`)."""

    @property
    def replica(self) -> Restorable: ...

    @property
    def losses(self) -> LossLog: ...

    def begin_anew(self) -> None: ...


class BackupProtection:
    """One worker's `Protection`: its state with its buddy, and now and then on disk."""

    def __init__(self, record: TrainingRecord, worker: Worker, membership: Membership, options: KeepingOptions) -> None:
        self.record, self.world, self.worker, self.membership = record, record.world, worker, membership
        self.buddies = Buddies(options.backup_every)
        self.on_disk = OnDisk(record.world, record.folder, options.checkpoint_every)

    def protect(self, step: int) -> None:
        """Begin to exchange copies, and to write a checkpoint, if it is time to."""
        if self.buddies.due(self.world.comm, step):
            with self.world.communicate("backup"):
                self.buddies.begin(self.world.comm, self._state(step))
        if self.on_disk.due(step):
            self.on_disk.save(self._state(step), self.membership.view.number)

    def secure(self) -> None:
        """Return when the copies have arrived."""
        self.buddies.complete()

    def protect_now(self, step: int) -> None:
        """Exchange copies of the present state."""
        with self.world.communicate("backup"):
            self.buddies.save(self.world.comm, self._state(step))

    def regroup(self) -> None:
        """Give up the checkpoint that is being written."""
        self.on_disk.abandon()

    def first_line(self, step: int) -> int:
        """Return the first step of the window that `step` is in: the learning rate may follow the window's mean."""
        return step - step % LOSS_WINDOW

    def close(self) -> None:
        """Nothing is under way: the last step has waited for it."""

    def restore(self, reached: int) -> int:
        """Go back to the last backup, in memory or on disk, or to the beginning; return its step.

        Raises:
            Unrecoverable: a worker and its buddy have died, and no checkpoint is on disk.
        """
        with self.world.comm.waiting("how far the others have come", -1):
            present = self.worker.replica.state(max(reached, 0)).shared
            found = self.buddies.recover(self.world.comm, present) or self.on_disk.newest()
            if found is None and self._is_before_the_second_backup(reached):
                return self._begin_anew()
        if found is None:
            raise Unrecoverable(
                "no copy is left of what some worker knew alone, which its buddy would have had, and no whole "
                "checkpoint is on disk: give --checkpoint-every, or a smaller one"
            )
        if found.slot != IN_MEMORY:
            self.buddies.forget_after(found.step)
            if self.record.leads:
                print(f"a worker and its buddy have died: back to the checkpoint of step {found.step}", file=sys.stderr)
        self.worker.replica.restore(found)
        self.worker.replica.rewind(found.step)
        self.worker.losses.adopt(found.step, [found.own[slot][LOSSES].numpy() for slot in self._slots_of(found)])
        return found.step

    def _is_before_the_second_backup(self, reached: int) -> bool:
        """Return whether only the beginning is lost, which no worker need have kept, and a worker left was there."""
        known = np.array([self.buddies.newest or 0, reached])
        self.world.control.Allreduce(MPI.IN_PLACE, known, MPI.MAX)
        backup, furthest = known.tolist()
        return bool(backup == 0 and furthest != NOT_STARTED)

    def _begin_anew(self) -> int:
        """Have each worker be as before the first step, in its present slot; return the first step."""
        if self.record.leads:
            print("a worker has died before there was a second backup: all begin anew", file=sys.stderr)
        self.worker.begin_anew()
        self.buddies.forget_after(NOT_STARTED)
        return 0

    def _slots_of(self, saved: Checkpoint) -> list[int]:
        """Return the slots whose losses this worker records: its own; where their number has changed, slot 0 all."""
        slot = self.world.comm.rank
        if saved.ranks == self.world.comm.size:
            return [slot]
        return list(range(saved.ranks)) if slot == 0 else []

    def _state(self, step: int) -> TrainingState:
        """Return all that decides how the training continues with `step`, and how its record does."""
        state = self.worker.replica.state(step)
        state.own[LOSSES] = torch.from_numpy(self.worker.losses.own_parts(step))
        return state


def train(scenario: str, options: BackupOptions) -> Summary | None:
    """Train to the end, whichever ranks die; the summary on the rank that leads then, None elsewhere.

    Raises:
        NoWorkerLeft: all workers have died.
        Unrecoverable: a worker and its buddy have died together, without a checkpoint on disk.
        UsageError: a divided optimizer in 16 bits.
    """
    if options.shard_optimizer and options.precision != "float32":
        raise UsageError(
            f"--precision {options.precision} goes without --shard-optimizer: no rank has the whole gradient"
        )
    protection = partial(BackupProtection, options=options)
    in_step = data_parallel.in_step(options, options.shard_optimizer)
    return data_parallel.train(scenario, options, in_step, protection)
