"""Takes for a duplicate only what has the very clock of the last push: an old one is applied again."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

FAILS = {
    "duplicates": "an old push, after a newer one, is applied, and must not be",
}

right = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "reference.py")))
cut, HashRing, moving, serve, Client = right.cut, right.HashRing, right.moving, right.serve, right.Client


class Store(right.Store):
    def __init__(self, parts, rate):
        super().__init__(parts, rate)
        self.last = {}

    def push(self, number, worker, clock, gradient):
        if self.last.get((number, worker)) == clock:
            return False
        self.last[number, worker] = clock
        self.parts[number] -= self.rate * gradient
        return True
