"""What a training does against the loss of ranks: four moves, the same for every method.

    protect    before each step: keep what could be lost
    secure     before any parameter changes: what was kept is safe
    regroup    the ranks have changed
    restore    have all ranks continue from the same step

A training owns one `Protection` and calls it at these moments; it does not know which one. There are four:

    `membership_protection`   keeps nothing: a rank that lives has all that the dead ranks had in common with it
    `backup`                  copies in the memory of a buddy, and behind them checkpoints on disk
    `stage_backup`            as `backup`, of a pipeline's stages, which share nothing
    `checkpoint_protection`   checkpoints on disk only, for a training that is started again
"""

from __future__ import annotations

from typing import Protocol


class Protection(Protocol):
    """One rank's part in it. All methods are collective among the ranks that train."""

    def protect(self, step: int) -> None:
        """Keep what the training needs to continue with `step`, if it is time to."""
        ...

    def secure(self) -> None:
        """Return when what `protect` has begun to keep is safe."""
        ...

    def protect_now(self) -> None:
        """Keep the present state although it is not time to, so that a change of the ranks loses no step."""
        ...

    def regroup(self) -> None:
        """Give up what is under way, since the ranks have changed."""
        ...

    def restore(self) -> int:
        """Have all ranks be at the same step, and return it: the step to take next."""
        ...

    def first_line(self, step: int) -> int:
        """Return the step from which the record's lines are written anew when training continues with `step`."""
        ...
