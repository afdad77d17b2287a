"""Protection against the loss of ranks: four calls, the same for every method.

    protect    before each step: save the state that could be lost
    secure     before any parameter changes: wait until the saved state is safe
    regroup    adapt to a change of the ranks
    restore    have all ranks continue from the same step

A training is given one `Protection` and makes these calls (`protected_training`); it does not know which one it is:

    `membership_protection`   keeps nothing: every living rank knows what the dead ranks had in common with it
    `elastic_diloco`          the same, where each worker has moved its own parameters since the last outer step
    `backup`                  copies in the memory of a buddy, and behind them checkpoints on disk
    `stage_backup`            as `backup`, of a pipeline's stages, which share nothing
    `checkpoint_protection`   checkpoints on disk only, for a training that is started again
"""

from __future__ import annotations

from typing import Protocol

from farandole.errors import PlainError

NOT_STARTED = -1  # the step of a rank that has taken none


class Unrecoverable(PlainError):
    """The training cannot continue without the ranks that have died."""


class Stopped(Exception):
    """The training was asked to stop, and all that it needs to continue is safe."""


class Protection(Protocol):
    """One rank's part in it. All methods are collective among the ranks that train."""

    def protect(self, step: int) -> None:
        """Keep what the training needs to continue with `step`, if it is time to.

        Raises:
            Stopped: the training was asked to stop, and its state is safe.
        """
        ...

    def secure(self) -> None:
        """Return when the parameters may change without harm to what `protect` has begun to keep."""
        ...

    def protect_now(self, step: int) -> None:
        """Keep the state before `step` although it is not time to, so that a change of the ranks loses no step."""
        ...

    def regroup(self) -> None:
        """Give up what is under way, since the ranks have changed."""
        ...

    def restore(self, reached: int) -> int:
        """Have all ranks be at the same step, and return it: the step to take next.

        Args:
            reached: the step that this rank would take next; `NOT_STARTED` on one that has taken none.

        Raises:
            Unrecoverable: what was lost is nowhere else.
        """
        ...

    def first_line(self, step: int) -> int:
        """Return the step from which the record's lines are written anew when training continues with `step`."""
        ...

    def close(self) -> None:
        """Return when all that was kept is safe: no step follows."""
        ...
