"""Takes a damaged file for an error, and does not look at the other."""

from __future__ import annotations

import hashlib

FAILS = {
    "flipped bytes": "ValueError: slot-0 is damaged, at line",
    "truncated": "ValueError: slot-0 is damaged, at line",
    "good slot": "ValueError: slot-0 is damaged, at line",
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
        raise ValueError(f"{name} is damaged")
    return int.from_bytes(content[:8], "big"), content[8:]


def save(disk, step, payload):
    steps = {name: (unpacked(disk, name) or (-1,))[0] for name in SLOTS}
    slot = min(SLOTS, key=steps.get)
    disk.write("new", packed(step, payload))
    disk.sync("new")
    disk.rename("new", slot)
    disk.sync_folder()


def load(disk):
    return max(filter(None, (unpacked(disk, name) for name in SLOTS)), default=None)
