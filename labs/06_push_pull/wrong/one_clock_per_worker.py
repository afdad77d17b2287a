"""Keeps one clock per worker for all ranges: of a gradient in three ranges, it applies the first."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

FAILS = {
    "duplicates": "a push with the same clock for another range, is not applied",
    "acknowledged": "after the pull the parameter of key 3 is 0",
}

right = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "reference.py")))
cut, HashRing, moving, serve, Client = right.cut, right.HashRing, right.moving, right.serve, right.Client


class Store(right.Store):
    def push(self, number, worker, clock, gradient):
        if self.clocks.seen(0, worker, clock):
            return False
        self.clocks.note(0, worker, clock)
        self.parts[number] -= self.rate * gradient
        return True
