"""The checksum is hash(), which is another one in every process."""

from __future__ import annotations

FAILS = {
    "another process": "load returns None, but another process, rank 0, has saved step 30",
}
SLOTS = ("slot-0", "slot-1")


def packed(step, payload):
    content = step.to_bytes(8, "big") + payload
    return hash(content).to_bytes(32, "big", signed=True) + content


def unpacked(disk, name):
    if name not in disk.names():
        return None
    data = disk.read(name)
    digest, content = data[:32], data[32:]
    if len(content) < 8 or hash(content).to_bytes(32, "big", signed=True) != digest:
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
