"""Goes by the step in a file that it does not check, and so overwrites the one that is whole."""

from __future__ import annotations

import hashlib

FAILS = {
    "good slot": "a bit flipped in byte 32 of 'slot-0'; step 30 was saved; then",
}
SLOTS = ("slot-0", "slot-1")


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


def step_in(disk, name):
    return int.from_bytes(disk.read(name)[32:40], "big") if name in disk.names() else -1


def save(disk, step, payload):
    slot = min(SLOTS, key=lambda name: step_in(disk, name))
    disk.write("new", packed(step, payload))
    disk.sync("new")
    disk.rename("new", slot)
    disk.sync_folder()


def load(disk):
    return max(filter(None, (unpacked(disk, name) for name in SLOTS)), default=None)
