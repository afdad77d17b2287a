"""Keeps no clocks: a push that is sent again is applied again."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

FAILS = {
    "duplicates": "the same push once more, is applied, and must not be",
    "acknowledged": "the worker's own push twice",
}

right = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "reference.py")))
cut, HashRing, moving, serve, Client = right.cut, right.HashRing, right.moving, right.serve, right.Client


class Store(right.Store):
    def push(self, number, worker, clock, gradient):
        self.parts[number] -= self.rate * gradient
        return True
