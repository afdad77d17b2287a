"""Takes it for granted that a file is long enough to hold what stands at its beginning."""

from __future__ import annotations

import struct
import zlib

FAILS = {
    "truncated": "only 0 of the 36 bytes of 'slot-0' left: error: unpack requires a buffer of 12",
    "good slot": "only 0 bytes of 'slot-0' left: error: unpack",
}
SLOTS = ("slot-0", "slot-1")


def packed(step, payload):
    content = struct.pack(">Q", step) + payload
    return struct.pack(">I", zlib.crc32(content)) + content


def unpacked(disk, name):
    if name not in disk.names():
        return None
    data = disk.read(name)
    checksum, step = struct.unpack(">IQ", data[:12])
    return (step, data[12:]) if zlib.crc32(data[4:]) == checksum else None


def save(disk, step, payload):
    steps = {name: (unpacked(disk, name) or (-1,))[0] for name in SLOTS}
    slot = min(SLOTS, key=steps.get)
    disk.write("new", packed(step, payload))
    disk.sync("new")
    disk.rename("new", slot)
    disk.sync_folder()


def load(disk):
    return max(filter(None, (unpacked(disk, name) for name in SLOTS)), default=None)
