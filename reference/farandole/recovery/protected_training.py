"""The training loop of this room: protect what could be lost, take a step, account for it.

    restore    have all ranks continue from the same step
    train      protect, and take a step, until all steps are done
    finish     evaluate, and write the record

Two things are passed in, and the loop knows neither. A `Trainable` defines a step: a data-parallel worker
(`data_parallel`) or a stage of a pipeline (`pipeline`). A `Protection` defines what is saved, and how it is restored.

`restart` uses the loop as it is: a death ends the job, and the next start restores. Where ranks outlive each other,
`fault_tolerant_training` restores and continues in the same job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from farandole.recovery.protection import Protection
from farandole.recovery.training_record import TrainingRecord
from farandole.runtime.progress import progress
from farandole.runtime.record import Summary


class Resumable(Protocol):
    """One rank's training, between two steps. All methods are collective among the ranks that train, unless they say
    otherwise.

    Attributes:
        steps: of the whole training.
    """

    steps: int

    def prepare(self) -> None:
        """Do what takes time before the first step, where nothing has to be restored. Spares call it, too."""
        ...

    def account(self, step: int) -> bool:
        """Record the step that was taken; return whether all ranks have just exchanged what they know of it."""
        ...

    def regroup(self) -> None:
        """Give up what is under way, since the ranks have changed. Not collective; spares call it, too.

        Raises:
            Unrecoverable: the ranks left are too few.
        """
        ...

    def resume(self, step: int, first_line: int) -> None:
        """The state is restored: go to `step` in the data, and have the leading rank write the record's next lines.

        Args:
            first_line: the step from which lines are written anew.
        """
        ...


class Trainable(Resumable, Protocol):
    """One rank's training, with its steps."""

    def step(self, step: int, secure: Callable[[], None]) -> None:
        """Take one step.

        Args:
            secure: to be called before any parameter changes.
        """
        ...

    def finish(self) -> Summary | None:
        """Evaluate, and write the record; return the summary on the rank that leads, None elsewhere."""
        ...


class MembersChange(Exception):
    """The members are to change though no rank has died, for instance because a spawned process is ready to join.

    Attributes:
        more: one more worker is wanted, if there is a spare or a process may be started.
        requested: one more worker was requested from outside.
    """

    def __init__(self, more: bool, requested: bool) -> None:
        super().__init__()
        self.more, self.requested = more, requested


class ProtectedSteps:
    """One rank's steps in a training that is protected. A loop over them takes them.

    Args:
        wanted_change: asked where all ranks have just exchanged what they know; returns the change of the members that
            is due, the same on all ranks. Collective.

    Attributes:
        step: to be taken next.
    """

    def __init__(
        self,
        record: TrainingRecord,
        trainable: Resumable,
        protection: Protection,
        wanted_change: Callable[[], MembersChange | None] = lambda: None,
        step: int = 0,
    ) -> None:
        self.record, self.trainable, self.protection = record, trainable, protection
        self.wanted_change, self.step = wanted_change, step

    def restore(self) -> None:
        """Have all ranks continue from the same step."""
        self.step = self.protection.restore(self.step)
        self.record.note("start", self.step)  # before any rank continues, and may fail again
        self.trainable.resume(self.step, self.protection.first_line(self.step))

    def __iter__(self) -> Iterator[int]:
        """Yield each step that is left, once it is protected; it counts when the next one is asked for.

        Raises:
            MembersChange: it is due, and the present state is protected.
            Stopped: the training was asked to stop, and its state is safe.
        """
        first, steps = self.step, self.trainable.steps
        for step in range(first, steps):
            self.protection.protect(step)
            yield step
            self.step = step + 1
            if step == first:
                self.record.note("first step", step)
            if self.trainable.account(step) and (change := self.wanted_change()) and self.step < steps:
                self.protection.protect_now(self.step)
                raise change
        self.protection.close()
        self.record.recorder.stop()


class ProtectedTraining(ProtectedSteps):
    """One rank's part in a training that is protected."""

    trainable: Trainable

    def take_steps(self) -> None:
        """Take all steps that are left.

        Raises:
            MembersChange: it is due, and the present state is protected.
            Stopped: the training was asked to stop, and its state is safe.
        """
        left = self.trainable.steps - self.step
        for step in progress(self, left, self.record.world.rank):
            self.trainable.step(step, self.protection.secure)

    def finish(self) -> Summary | None:
        """Evaluate, and write the record; return the summary on the rank that leads, None elsewhere."""
        return self.trainable.finish()
