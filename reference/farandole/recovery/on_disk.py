"""Checkpoints behind the copies in memory, for when a worker and its buddy die together.

Copies in memory are lost with those that have them; what is on the disk is older, but outlives everybody. Each
worker writes its part, now and then, from a copy and in a thread (`checkpointer`). After deaths a new
one begins: it must not write first where the newest whole checkpoint lies.

Cost: a checkpoint's (`checkpointer`). After deaths the one that leads reads all that is there; the others do, too, only
where memory does not suffice. Source, of two levels: Moody, Bronevetsky, Mohror & de Supinski, "Design, modeling, and
evaluation of a scalable multi-level checkpointing system", 2010.
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
        """Whether it is time for a checkpoint."""
        return self.every > 0 and step % self.every == 0

    def save(self, state: TrainingState, change: int) -> None:
        """Begin to write `state`. Collective.

        Args:
            change: number of the workers' last change: parts that different groups have written do not fit together.
        """
        if self._checkpointer is None:
            self._checkpointer = Checkpointer(self.world, self.folder, occupied=self._newest_slot())
        state.values["change"] = change
        self._checkpointer.save(state)

    def abandon(self) -> None:
        """The workers have changed: what was being written may not become whole."""
        if self._checkpointer:
            self._checkpointer.abandon()
            self._checkpointer = None

    def newest(self) -> Checkpoint | None:
        """The newest whole checkpoint, the same on all workers; who leads says which are damaged. Collective."""
        slot = self._newest_slot()
        return None if slot is None else checkpoint.read(self.folder, slot)

    def _newest_slot(self) -> int | None:
        with self.world.comm.waiting("the newest checkpoint", -1):
            return newest_slot(self.world, self.folder)
