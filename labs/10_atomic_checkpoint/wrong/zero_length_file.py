"""Replaces its one file by one that is synced only afterwards: for a while there may be an empty one."""

from __future__ import annotations

import hashlib

FAILS = {
    "crash": "after rename('new', 'checkpoint'), with 0 of the 57 bytes of 'checkpoint' on the disk",
    "flipped bytes": "only one is damaged",
    "truncated": "only one is damaged",
    "good slot": "but step 10 had been saved, and step 15 was on its way",
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


def save(disk, step, payload):
    disk.write("new", packed(step, payload))
    disk.rename("new", "checkpoint")
    disk.sync_folder()
    disk.sync("checkpoint")


def load(disk):
    return unpacked(disk, "checkpoint")
