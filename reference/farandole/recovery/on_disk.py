"""Checkpoints behind the copies in memory, for when a worker and its buddy die together.

Copies in memory are lost with the ranks that hold them; those on the disk are older, but outlive all ranks. Each
worker writes its part at intervals, from a copy and in a thread (`checkpointer`). After deaths a new checkpointer
begins, which must not write first to the slot of the newest whole checkpoint.

Cost: a checkpoint's (`checkpointer`). After deaths the rank that leads reads both slots; the others do so only
where copies in memory do not suffice. Source, of two levels: Moody, Bronevetsky, Mohror & de Supinski, "Design,
modeling, and evaluation of a scalable multi-level checkpointing system", 2010.
"""

from __future__ import annotations

from pathlib import Path

from farandole.recovery import checkpoint
from farandole.recovery.checkpoint import Checkpoint
from farandole.recovery.checkpointer import Checkpointer, newest_slot
from farandole.recovery.state import TrainingState
from farandole.runtime.world import World


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
        """Return whether it is time for a checkpoint."""
        return self.every > 0 and step % self.every == 0

    def save(self, state: TrainingState, change: int) -> None:
        """Begin to write `state`. Collective.

        Args:
            change: number of the last change of the workers; parts with different numbers do not fit together.
        """
        if self._checkpointer is None:
            self._checkpointer = Checkpointer(self.world, self.folder, occupied=self._newest_slot())
        state.values["change"] = change
        self._checkpointer.save(state)

    def abandon(self) -> None:
        """Give up the checkpoint that is being written, since the workers have changed."""
        if self._checkpointer:
            self._checkpointer.abandon()
            self._checkpointer = None

    def newest(self) -> Checkpoint | None:
        """Return the newest whole checkpoint, the same on all workers; None: there is none. Collective."""
        slot = self._newest_slot()
        return None if slot is None else checkpoint.read(self.folder, slot)

    def _newest_slot(self) -> int | None:
        with self.world.comm.waiting("the newest checkpoint", -1):
            return newest_slot(self.world, self.folder)
