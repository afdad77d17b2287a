"""Protection by checkpoints on disk, for a training that all ranks start again (`restart`).

    protect    write a checkpoint, if it is time to (`checkpointer`, `interval`)
    restore    at a start: go back to the newest complete checkpoint, if there is one

No rank outlives another one here, so `regroup` is never called. Cost: a copy in memory per checkpoint, for which
training stands still, and its way to the disk in a thread.
"""

from __future__ import annotations

import sys
import uuid
from typing import TYPE_CHECKING

import numpy as np
from mpi4py import MPI

from farandole.errors import UsageError
from farandole.recovery import checkpoint
from farandole.recovery.checkpointer import Checkpointer, newest_slot
from farandole.recovery.interval import Cadence
from farandole.runtime.communicator import broadcast_text

if TYPE_CHECKING:
    from farandole.recovery.restart import Restartable


class CheckpointProtection:
    """One rank's `Protection`. Made by all ranks together."""

    def __init__(self, training: Restartable) -> None:
        self.training, self.world, options = training, training.world, training.options
        self.folder = training.folder / checkpoint.CHECKPOINTS
        self.start = broadcast_text(self.world.control, uuid.uuid4().hex)
        self.cadence = Cadence(options.checkpoint_every, options.mtbf)
        self.checkpointer: Checkpointer | None = None
        self._last, self._last_s = 0, 0.0  # the step of the last checkpoint, and when it was

    def restore(self) -> int:
        """Go back to the newest complete checkpoint; return its step, 0 if there is none.

        Raises:
            UsageError: the checkpoint is of a training with other options.
        """
        options, slot = self.training.options, newest_slot(self.world, self.folder)
        if slot is not None:
            saved = checkpoint.read(self.folder, slot)
            if saved.step >= options.steps:
                raise UsageError(
                    f"the checkpoint in slot-{slot} is of step {saved.step}, and of another training: this one has "
                    f"{options.steps} steps; put back the folder's own checkpoints, or give another --out"
                )
            self.training.replica.restore(saved)
            self._last = saved.step
            if self.world.rank == 0:
                print(f"goes on from step {saved.step}, saved in {self.folder / f'slot-{slot}'}", file=sys.stderr)
        by, asynchronous = options.checkpoint_by, options.checkpoint_async
        self.checkpointer = Checkpointer(self.world, self.folder, by=by, asynchronous=asynchronous, occupied=slot)
        return self._last

    def begin(self) -> None:
        """The first step begins: the mean time of a step is measured from here."""
        self._last_s = self.training.recorder.elapsed_s

    def protect(self, step: int) -> None:
        """Write a checkpoint if it is time to; its cost decides when the next one is due."""
        if self.cadence.due(step - self._last):
            self._save(step)

    def protect_now(self) -> None:
        """Write a checkpoint of the present state."""
        self._save(self.training.step)

    def secure(self) -> None:
        """Return when the last checkpoint is on the disk of all ranks."""
        assert self.checkpointer is not None
        self.checkpointer.finish()

    def regroup(self) -> None:
        """Give up the checkpoint that is being written."""
        assert self.checkpointer is not None
        self.checkpointer.abandon()

    def first_line(self, step: int) -> int:
        """Return `step`: the lines before it were written with the checkpoint."""
        return step

    def _save(self, step: int) -> None:
        training = self.training
        assert self.checkpointer is not None
        training.losses.flush(step)
        step_s = (training.recorder.elapsed_s - self._last_s) / (step - self._last)
        state = training.replica.state(step)
        state.values["start"] = self.start  # parts that different starts have written do not fit together
        cost_s = self.checkpointer.save(state)
        self.cadence.measured(cost_s, self._slowest(step_s))
        self._last, self._last_s = step, training.recorder.elapsed_s
        if self.world.rank == 0:
            training.event_log.write("checkpoint", 0, step)

    def _slowest(self, seconds: float) -> float:
        longest = np.array([seconds])
        with self.world.comm.waiting("time of a step", -1):
            self.world.control.Allreduce(MPI.IN_PLACE, longest, MPI.MAX)
        return float(longest[0])
