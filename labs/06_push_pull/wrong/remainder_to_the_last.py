"""Gives the last range all keys that are left when keys are divided by ranges."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

FAILS = {
    "ranges": "the longest range has",
}

right = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "reference.py")))
HashRing, moving, Store, serve, Client = right.HashRing, right.moving, right.Store, right.serve, right.Client


def cut(keys, ranges):
    length = keys // ranges
    return [range(i * length, keys if i == ranges - 1 else (i + 1) * length) for i in range(ranges)]
