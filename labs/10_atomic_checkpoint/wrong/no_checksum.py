"""Believes whatever is in a file that is long enough."""

from __future__ import annotations

FAILS = {
    "flipped bytes": "a bit flipped in byte 0 of 'slot-0': load returns the payload of step 10 as that of step",
    "truncated": "with a payload that has never been saved",
    "good slot": "load returns the payload of step 10 as that of step",
}
SLOTS = ("slot-0", "slot-1")


def unpacked(disk, name):
    if name not in disk.names() or len(disk.read(name)) < 8:
        return None
    data = disk.read(name)
    return int.from_bytes(data[:8], "big"), data[8:]


def save(disk, step, payload):
    steps = {name: (unpacked(disk, name) or (-1,))[0] for name in SLOTS}
    slot = min(SLOTS, key=steps.get)
    disk.write("new", step.to_bytes(8, "big") + payload)
    disk.sync("new")
    disk.rename("new", slot)
    disk.sync_folder()


def load(disk):
    return max(filter(None, (unpacked(disk, name) for name in SLOTS)), default=None)
