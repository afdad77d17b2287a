"""Keeps in a variable which slot is next, and asks nobody which one is whole."""

from __future__ import annotations

import hashlib

FAILS = {
    "good slot": "has it been overwritten?",
}
SLOTS = ("slot-0", "slot-1")
saves = 0


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


def save(disk, step, payload):
    global saves
    slot = SLOTS[saves % 2]
    saves += 1
    disk.write("new", packed(step, payload))
    disk.sync("new")
    disk.rename("new", slot)
    disk.sync_folder()


def load(disk):
    return max(filter(None, (unpacked(disk, name) for name in SLOTS)), default=None)
