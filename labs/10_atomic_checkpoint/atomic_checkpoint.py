"""Lab 10: a checkpoint that is there whenever the machine stops, and is never believed when it is damaged.

Complete `save` and `load`, then: farandole lab check 10
"""

from __future__ import annotations

from farandole_tools.lab.disk import Disk


def save(disk: Disk, step: int, payload: bytes) -> None:
    """Keep the state of the training after `step` steps.

    Whenever the machine stops in here, what `load` gave before is still loaded, or already the new
    checkpoint. When `save` has returned, the new one is on the disk, and so is, untouched, the one
    that `load` gave before: if one of the two is damaged, the other is loaded.

    All that is remembered from one call to the next is what is on the disk. There may also be what a
    save that was never finished has left there. The number of files is bounded: old checkpoints go.

    Args:
        disk: what `farandole_tools.lab.disk` says: what is not synced may be lost, or there in part.
        step: 0 or more, and more than that of the checkpoint that `load` would give now.
        payload: any bytes, any number of them.
    """
    raise NotImplementedError


def load(disk: Disk) -> tuple[int, bytes] | None:
    """The newest checkpoint that is whole: its step and its payload.

    A file of which some bytes are others, or missing at the end, is passed over, never an error.
    None if there is no checkpoint that is whole.
    """
    raise NotImplementedError
