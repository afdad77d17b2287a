"""Protection by checkpoints on disk, for a training that all ranks start again (`restart`).

    protect    write a checkpoint, if one is due (`checkpointer`, `interval`), or if the training is to stop
    restore    at a start: go back to the newest complete checkpoint, if there is one

Here a death ends all ranks, so `regroup` is never called. Cost: a copy in memory per checkpoint, during which training
waits; a thread writes it to the disk.
"""

from __future__ import annotations

import sys
import uuid

import numpy as np
from mpi4py import MPI

from farandole.errors import UsageError
from farandole.recovery import checkpoint
from farandole.recovery.checkpointer import Checkpointer, newest_slot
from farandole.recovery.data_parallel import DataParallel
from farandole.recovery.interval import Cadence
from farandole.recovery.options import ResumableOptions
from farandole.recovery.protection import Stopped
from farandole.recovery.training_record import TrainingRecord
from farandole.runtime.communicator import broadcast_text
from farandole.runtime.stop_request import StopRequest


class CheckpointProtection:
    """One rank's `Protection`. Made by all ranks together.

    Args:
        stop: a signal to any rank that asks the training to stop.
    """

    def __init__(
        self, record: TrainingRecord, worker: DataParallel, options: ResumableOptions, stop: StopRequest
    ) -> None:
        self.record, self.world, self.worker, self.options, self.stop = record, record.world, worker, options, stop
        self.folder = record.folder / checkpoint.CHECKPOINTS
        self.start = broadcast_text(self.world.control, uuid.uuid4().hex)
        self.cadence = Cadence(options.checkpoint_every, options.mtbf)
        self.checkpointer: Checkpointer | None = None
        self._last = 0  # the step of the last checkpoint
        self._last_s: float | None = None  # when it was, or when this start began; None: before the first step

    def restore(self, reached: int) -> int:
        """Go back to the newest complete checkpoint; return its step, 0 if there is none.

        Raises:
            UsageError: the checkpoint is of a training with other options.
        """
        options, slot = self.options, newest_slot(self.world, self.folder)
        if slot is not None:
            saved = checkpoint.read(self.folder, slot)
            if saved.step >= options.steps:
                raise UsageError(
                    f"the checkpoint in slot-{slot} is of step {saved.step}, and of another training: this one has "
                    f"{options.steps} steps; put back the folder's own checkpoints, or give another --out"
                )
            self.worker.replica.restore(saved)
            self._last = saved.step
            if self.world.rank == 0:
                print(f"goes on from step {saved.step}, saved in {self.folder / f'slot-{slot}'}", file=sys.stderr)
        by, asynchronous = options.checkpoint_by, options.checkpoint_async
        self.checkpointer = Checkpointer(self.world, self.folder, by=by, asynchronous=asynchronous, occupied=slot)
        return self._last

    def protect(self, step: int) -> None:
        """Write a checkpoint if it is time to; its cost decides when the next one is due.

        Raises:
            Stopped: a rank was asked to stop, and the state before `step` is on the disk.
        """
        if self._last_s is None:  # the first step of this start
            self._last_s = self.record.recorder.elapsed_s
        elif self.stop.heard():
            self._save(step)
            self.close()
            raise Stopped
        elif self.cadence.due(step - self._last):
            self._save(step)

    def secure(self) -> None:
        """Return at once: the copy in memory is complete."""

    def protect_now(self, step: int) -> None:
        """Write a checkpoint of the present state."""
        self._save(step)

    def close(self) -> None:
        """Return when the last checkpoint is on the disk of all ranks."""
        assert self.checkpointer is not None
        self.stop.complete()
        self.checkpointer.finish()

    def regroup(self) -> None:
        """Give up the checkpoint that is being written."""
        assert self.checkpointer is not None
        self.checkpointer.abandon()

    def first_line(self, step: int) -> int:
        """Return `step`: the lines before it were written with the checkpoint."""
        return step

    def _save(self, step: int) -> None:
        assert self.checkpointer is not None
        assert self._last_s is not None
        self.worker.losses.flush(step)
        step_s = (self.record.recorder.elapsed_s - self._last_s) / (step - self._last)
        state = self.worker.replica.state(step)
        state.values["start"] = self.start  # parts that different starts have written do not fit together
        cost_s = self.checkpointer.save(state)
        self.cadence.measured(cost_s, self._slowest(step_s))
        self._last, self._last_s = step, self.record.recorder.elapsed_s
        self.record.note("checkpoint", step)

    def _slowest(self, seconds: float) -> float:
        longest = np.array([seconds])
        with self.world.comm.waiting("time of a step", -1):
            self.world.control.Allreduce(MPI.IN_PLACE, longest, MPI.MAX)
        return float(longest[0])
