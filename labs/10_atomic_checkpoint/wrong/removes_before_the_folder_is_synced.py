"""Removes the old one before the new name is on the disk: of the two, one may have happened."""

from __future__ import annotations

import hashlib

FAILS = {
    "crash": "without rename('new', 'step-20') on the disk: load returns None",
    "flipped bytes": "only one is damaged",
    "truncated": "only one is damaged",
    "good slot": "without rename('new', 'step-15') on the disk",
}


def packed(step, payload):
    content = step.to_bytes(8, "big") + payload
    return hashlib.sha256(content).digest() + content


def unpacked(disk, name):
    if name not in disk.names():
        return None
    data = disk.read(name)
    digest, content = data[:32], data[32:]
    if len(content) < 8 or hashlib.sha256(content).digest() != digest:
        return None
    return int.from_bytes(content[:8], "big"), content[8:]


def checkpoints(disk):
    """Name and content of all that are whole, the newest last."""
    whole = ((unpacked(disk, name), name) for name in disk.names() if name.startswith("step-"))
    return sorted((found, name) for found, name in whole if found)


def save(disk, step, payload):
    disk.write("new", packed(step, payload))
    disk.sync("new")
    disk.rename("new", f"step-{step}")
    for _, old in checkpoints(disk)[:-1]:
        disk.remove(old)
    disk.sync_folder()


def load(disk):
    return checkpoints(disk)[-1][0] if checkpoints(disk) else None
