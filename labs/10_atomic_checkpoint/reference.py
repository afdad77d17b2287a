"""The protocol of the project's own checkpoints, farandole/recovery/checkpoint.py, on this lab's disk.

There a slot is a folder with two files per writer, and the JSON file, which comes last, holds the
checksums; here it is one file that begins with its own.
"""

from __future__ import annotations

import hashlib

from farandole_tools.lab.disk import Disk

SLOTS = ("slot-0", "slot-1")
UNFINISHED = "unfinished"
DIGEST, STEP = 32, 8  # bytes at the beginning of a slot


def save(disk: Disk, step: int, payload: bytes) -> None:
    slots = {name: read(disk, name) for name in SLOTS}
    # The first that holds nothing whole, or else the older one.
    slot = min(SLOTS, key=lambda name: -1 if (found := slots[name]) is None else found[0])
    content = step.to_bytes(STEP) + payload
    disk.write(UNFINISHED, hashlib.sha256(content).digest() + content)
    disk.sync(UNFINISHED)
    disk.rename(UNFINISHED, slot)
    disk.sync_folder()


def load(disk: Disk) -> tuple[int, bytes] | None:
    found = (read(disk, name) for name in SLOTS)
    return max((checkpoint for checkpoint in found if checkpoint), default=None)


def read(disk: Disk, name: str) -> tuple[int, bytes] | None:
    """The checkpoint in a slot, None if it is empty or damaged."""
    if name not in disk.names():
        return None
    data = disk.read(name)
    digest, content = data[:DIGEST], data[DIGEST:]
    if len(content) < STEP or hashlib.sha256(content).digest() != digest:
        return None
    return int.from_bytes(content[:STEP]), content[STEP:]
