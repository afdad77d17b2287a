"""Hands out its own array: what a worker has pulled goes on changing."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

FAILS = {
    "store": "a pull is a copy",
}

right = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "reference.py")))
cut, HashRing, moving, serve, Client = right.cut, right.HashRing, right.moving, right.serve, right.Client


class Store(right.Store):
    def pull(self, number):
        return self.parts[number]
