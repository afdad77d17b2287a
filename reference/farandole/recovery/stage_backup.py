"""Protection of a pipeline's stages: each one's copy is in the next one's memory, with checkpoints on disk behind.

As `backup`, but nothing is shared: a stage's parameters and optimizer state are its own. A spare that takes a dead
stage's slot is sent that stage's copy by its buddy, and all stages go back to the step of the copies. See `pipeline`
for why these copies fit together, and for the cost.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from farandole.recovery.buddies import Buddies
from farandole.recovery.fault_tolerant_training import Unrecoverable
from farandole.recovery.on_disk import OnDisk
from farandole.recovery.state import TrainingState

if TYPE_CHECKING:
    from farandole.recovery.pipeline import BackedUpPipeline

BACKUP_EVERY, CHECKPOINT_EVERY = 5, 50  # steps, where only spares are asked for
FOR_TWO = 2  # spares that a stage and its buddy take when they come back from the disk


class StageBackup:
    """One stage's `Protection`."""

    def __init__(self, training: BackedUpPipeline) -> None:
        self.training, options = training, training.options
        self.buddies = Buddies(options.backup_every or BACKUP_EVERY)
        usual = CHECKPOINT_EVERY if options.spares >= FOR_TWO else 0
        every = usual if options.checkpoint_every is None else options.checkpoint_every
        self.on_disk = OnDisk(training.world, training.folder, every)

    def protect(self, step: int) -> None:
        """Send a copy to the buddy, and write a checkpoint, if it is time to."""
        world = self.training.world
        if self.buddies.due(world.comm, step):
            with world.communicate("backup"):
                self.buddies.save(world.comm, self.training.state(step))
        if self.on_disk.due(step):
            self.on_disk.save(self.training.state(step), self.training.membership.view.number)

    def secure(self) -> None:
        """Return at once: `protect` has waited for its messages."""

    def protect_now(self) -> None:
        """Keep nothing: no stage joins while all stages live."""

    def regroup(self) -> None:
        """Give up the checkpoint that is being written."""
        self.on_disk.abandon()

    def first_line(self, step: int) -> int:
        """Return 0: a pipeline's lines are all written at the end."""
        return 0

    def restore(self) -> int:
        """Go back to the last backup of which every part is alive, or to the last one on disk; return its step.

        Raises:
            Unrecoverable: there is neither.
        """
        state = self.buddies.recover_own(self.training.world.comm)
        if state is None:
            state = self._from_disk()
        self.training.restore(state)
        return state.step

    def _from_disk(self) -> TrainingState:
        """Return this stage's state in the newest whole checkpoint."""
        found = self.on_disk.newest()
        if found is None:
            raise Unrecoverable(f"{self._what_is_gone()}, and no whole checkpoint is on disk: start again")
        self.buddies.forget_after(found.step)
        if self.training.membership.leads:
            print(f"{self._what_is_gone()}: back to the checkpoint of step {found.step}", file=sys.stderr)
        return found.of_rank(self.training.world.comm.rank)

    def _what_is_gone(self) -> str:
        stages = len(self.training.workers)
        if not self.buddies.gone:
            return "nobody who is left has a copy of any stage"
        copies = (f"stage {slot}, which its buddy, stage {(slot + 1) % stages}," for slot in self.buddies.gone)
        return f"no copy is left of {' and of '.join(copies)} would have had"
