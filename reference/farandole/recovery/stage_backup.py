"""Protection of a pipeline's stages: each one's copy is in the next one's memory, with checkpoints on disk behind.

As `backup`, but nothing is shared: a stage's parameters and optimizer state are its own. A spare that takes a dead
stage's slot is sent that stage's copy by its buddy, and all stages go back to the step of the copies. See `pipeline`
for why these copies fit together, and for the cost.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from farandole import tasks
from farandole.errors import UsageError
from farandole.model_parallel.layout import Layout
from farandole.recovery.buddies import Buddies
from farandole.recovery.fault_tolerant_training import FaultTolerantTraining, check, form_members
from farandole.recovery.membership import Membership
from farandole.recovery.on_disk import OnDisk
from farandole.recovery.options import PipelineBackupOptions
from farandole.recovery.pipeline import PipelineStage
from farandole.recovery.protected_training import ProtectedTraining
from farandole.recovery.protection import Unrecoverable
from farandole.recovery.state import TrainingState
from farandole.recovery.training_record import TrainingRecord
from farandole.runtime.record import Summary
from farandole.runtime.world import World

BACKUP_EVERY, CHECKPOINT_EVERY = 5, 50  # steps, where only spares are asked for
FOR_TWO = 2  # spares that a stage and its buddy take when they come back from the disk


class StageBackup:
    """One stage's `Protection`."""

    def __init__(self, record: TrainingRecord, stage: PipelineStage, membership: Membership) -> None:
        self.record, self.world, self.stage, self.membership = record, record.world, stage, membership
        options = stage.options
        self.buddies = Buddies(options.backup_every or BACKUP_EVERY)
        usual = CHECKPOINT_EVERY if options.spares >= FOR_TWO else 0
        every = usual if options.checkpoint_every is None else options.checkpoint_every
        self.on_disk = OnDisk(record.world, record.folder, every)

    def protect(self, step: int) -> None:
        """Send a copy to the buddy, and write a checkpoint, if it is time to."""
        if self.buddies.due(self.world.comm, step):
            with self.world.communicate("backup"):
                self.buddies.save(self.world.comm, self.stage.state(step))
        if self.on_disk.due(step):
            self.on_disk.save(self.stage.state(step), self.membership.view.number)

    def secure(self) -> None:
        """Return at once: `protect` has waited for its messages."""

    def protect_now(self, step: int) -> None:
        """Keep nothing: no stage joins while all stages live."""

    def regroup(self) -> None:
        """Give up the checkpoint that is being written."""
        self.on_disk.abandon()

    def first_line(self, step: int) -> int:
        """Return 0: a pipeline's lines are all written at the end."""
        return 0

    def close(self) -> None:
        """Nothing is under way: `protect` has waited for its messages."""

    def restore(self, reached: int) -> int:
        """Go back to the last backup of which every part is alive, or to the last one on disk; return its step.

        Raises:
            Unrecoverable: there is neither.
        """
        state = self.buddies.recover_own(self.world.comm) or self._from_disk()
        self.stage.restore(state)
        return state.step

    def _from_disk(self) -> TrainingState:
        """Return this stage's state in the newest whole checkpoint."""
        found = self.on_disk.newest()
        if found is None:
            raise Unrecoverable(f"{self._what_is_gone()}, and no whole checkpoint is on disk: start again")
        self.buddies.forget_after(found.step)
        if self.record.leads:
            print(f"{self._what_is_gone()}: back to the checkpoint of step {found.step}", file=sys.stderr)
        return found.of_rank(self.world.comm.rank)

    def _what_is_gone(self) -> str:
        stages = len(self.stage.workers)
        if not self.buddies.gone:
            return "no rank that is left has a copy of any stage"
        copies = (f"stage {slot}, which its buddy, stage {(slot + 1) % stages}," for slot in self.buddies.gone)
        return f"no copy is left of {' and of '.join(copies)} would have had"


def train(scenario: str, options: PipelineBackupOptions, layout: Callable[[int], Layout]) -> Summary | None:
    """Train to the end, whichever ranks die; the summary on the rank that leads then, None elsewhere.

    Args:
        layout: number of stages → how the model is spread over them.

    Raises:
        UsageError: a schedule that does not flush, or what `Parts` and `membership.check` refuse.
        Unrecoverable: a stage has died, and no spare is left; or its buddy with it, and no checkpoint is on disk.
    """
    tasks.of(options)  # refuses a model that cannot read the data
    if not layout(1).schedule.flushes:
        raise UsageError(
            f"--schedule {options.schedule}: batches are always under way, each with its own version of the "
            "parameters, so there is no step to go back to: without --spares, --backup-every and "
            "--checkpoint-every, or a schedule that flushes, as 1f1b"
        )
    if options.checkpoint_every and options.spares < FOR_TWO:
        raise UsageError(
            f"--checkpoint-every is for two stages that die together, and --spares {options.spares} has no places for "
            f"them: give {FOR_TWO} or more"
        )
    with World.start(options) as world:
        check(world, options)
        record = TrainingRecord(world, scenario, options)
        heart, membership = form_members(record, options)
        stage = PipelineStage(record, options, layout(world.size - options.spares), membership, heart)
        training = ProtectedTraining(record, stage, StageBackup(record, stage, membership))
        return FaultTolerantTraining(heart, membership, training).run()
