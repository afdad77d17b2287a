"""The checksum is that of the payload alone: a flipped bit in the step is believed."""

from __future__ import annotations

import hashlib

FAILS = {
    "flipped bytes": "a bit flipped in byte 32 of 'slot-0': load returns the payload of step 10 as that",
    "good slot": "returns the payload of step 10 as that of step",
}
SLOTS = ("slot-0", "slot-1")


def packed(step, payload):
    return hashlib.sha256(payload).digest() + step.to_bytes(8, "big") + payload


def unpacked(disk, name):
    if name not in disk.names():
        return None
    data = disk.read(name)
    digest, content = data[:32], data[32:]
    if len(content) < 8 or hashlib.sha256(content[8:]).digest() != digest:
        return None
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
