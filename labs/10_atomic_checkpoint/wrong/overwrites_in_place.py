"""Writes over the only checkpoint: from then until it is synced there may be none."""

from __future__ import annotations

import hashlib

FAILS = {
    "crash": "with 0 of the 57 bytes of 'checkpoint' on the disk: load returns None",
    "flipped bytes": "only one is damaged",
    "truncated": "only one is damaged",
    "good slot": "load returns None, but step 20 had been saved",
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
    disk.write("checkpoint", packed(step, payload))
    disk.sync("checkpoint")
    disk.sync_folder()


def load(disk):
    return unpacked(disk, "checkpoint")
