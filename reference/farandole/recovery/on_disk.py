"""Checkpoints behind the copies in memory, for when a worker and its buddy die together.

Copies in memory are lost with those that have them; what is on the disk is older, but outlives everybody. Each
worker writes its part, now and then, from a copy and in a thread (`checkpointer`). After deaths a new
one begins: it must not write first where the newest whole checkpoint lies.

Cost: a checkpoint's (`checkpointer`), and after deaths a reading of all of it by every worker. Source, of two levels:
Moody, Bronevetsky, Mohror & de Supinski, "Design, modeling, and evaluation of a scalable multi-level checkpointing
system", 2010.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from farandole.recovery import checkpoint
from farandole.recovery.checkpoint import Checkpoint
from farandole.recovery.checkpointer import Checkpointer
from farandole.recovery.state import TrainingState
from farandole.runtime.world import World

NONE = -1


class OnDisk:
    """One worker's part in it.

    Args:
        folder: of the record.
        every: steps between two checkpoints; 0: there are none.
    """

    def __init__(self, world: World, folder: Path, every: int) -> None:
        self.world, self.folder, self.every = world, folder / checkpoint.CHECKPOINTS, every
        self._checkpointer: Checkpointer | None = None

    def due(self, step: int) -> bool:
        """Whether it is time for a checkpoint."""
        return self.every > 0 and step % self.every == 0

    def save(self, state: TrainingState) -> None:
        """Begin to write `state`. Collective."""
        if self._checkpointer is None:
            found = self.newest()
            occupied = found.slot if found else None
            self._checkpointer = Checkpointer(self.world, self.folder, occupied=occupied)
        self._checkpointer.save(state)

    def abandon(self) -> None:
        """Somebody has died: what was being written will not be whole."""
        if self._checkpointer:
            with self.world.comm.waiting("the end of a checkpoint", -1):
                self._checkpointer.abandon()
            self._checkpointer = None

    def newest(self) -> Checkpoint | None:
        """The newest whole checkpoint, the same on all workers; who leads says which are damaged. Collective."""
        slot = np.array([NONE])
        with self.world.comm.waiting("the newest checkpoint", -1):
            if self.world.control.rank == 0:
                found, troubles = checkpoint.newest(self.folder)
                for trouble in troubles:
                    print(trouble, file=sys.stderr)
                slot[0] = found.slot if found else NONE
            self.world.control.Bcast(slot)
            return checkpoint.read(self.folder, int(slot[0])) if slot[0] != NONE else None
