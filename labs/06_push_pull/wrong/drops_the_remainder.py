"""Cuts ranges of keys // ranges: the last keys belong to none."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

FAILS = {
    "ranges": "is in no range, nor any after it",
}

right = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "reference.py")))
HashRing, moving, Store, serve, Client = right.HashRing, right.moving, right.Store, right.serve, right.Client


def cut(keys, ranges):
    length = keys // ranges
    return [range(i * length, (i + 1) * length) for i in range(ranges)]
