"""Replaces first the payload and then the step: in between stands a checkpoint that never was."""

from __future__ import annotations

import hashlib

FAILS = {
    "crash": "load returns the payload of step 20 as that of step 10",
    "flipped bytes": "only one is damaged",
    "truncated": "only one is damaged",
    "good slot": "load returns the payload of step 15 as that of step 10",
}


def packed(data):
    return hashlib.sha256(data).digest() + data


def unpacked(disk, name):
    data = disk.read(name) if name in disk.names() else b""
    return data[32:] if hashlib.sha256(data[32:]).digest() == data[:32] else None


def save(disk, step, payload):
    for name, content in (("payload", payload), ("step", b"%d" % step)):
        disk.write("new", packed(content))
        disk.sync("new")
        disk.rename("new", name)
        disk.sync_folder()


def load(disk):
    step, payload = unpacked(disk, "step"), unpacked(disk, "payload")
    return None if step is None or payload is None else (int(step), payload)
