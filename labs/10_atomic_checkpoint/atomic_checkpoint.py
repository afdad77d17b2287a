"""Lab 10: a checkpoint that survives a crash at any moment, and is never loaded when it is damaged.

Complete `save` and `load`, then: farandole lab check 10
"""

from __future__ import annotations

from farandole_tools.lab.disk import Disk


def save(disk: Disk, step: int, payload: bytes) -> None:
    """Save the state of the training after `step` steps.

    If the machine crashes during this call, `load` returns either the checkpoint that it returned
    before the call or the new one. After `save` has returned, the new one is on the disk, and the one
    that `load` returned before is still there, unchanged: if either is damaged, `load` returns the
    other.

    Only the disk keeps state from one call to the next. It may also hold files of a save that was
    interrupted. The number of files is bounded: `save` removes or overwrites old checkpoints.

    Args:
        disk: as described in `farandole_tools.lab.disk`: data that is not synced may be lost, entirely or in part.
        step: 0 or more, and above the step of the checkpoint that `load` would return now.
        payload: the state, as any number of bytes.
    """
    raise NotImplementedError


def load(disk: Disk) -> tuple[int, bytes] | None:
    """Return the step and the payload of the newest checkpoint that is whole.

    A file with changed bytes, or with bytes missing at the end, is skipped; it never raises an error.
    Return None if no checkpoint is whole.
    """
    raise NotImplementedError
