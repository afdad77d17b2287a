"""The checksum is the sum of all bytes, which does not see that two have changed places."""

from __future__ import annotations

FAILS = {
    "flipped bytes": "exchanged: load returns the payload of step 10 as that of step 2560",
}
SLOTS = ("slot-0", "slot-1")


def packed(step, payload):
    content = step.to_bytes(8, "big") + payload
    return sum(content).to_bytes(32, "big") + content


def unpacked(disk, name):
    if name not in disk.names():
        return None
    data = disk.read(name)
    digest, content = data[:32], data[32:]
    if len(content) < 8 or sum(content).to_bytes(32, "big") != digest:
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
