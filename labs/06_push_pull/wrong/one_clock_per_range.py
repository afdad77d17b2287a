"""Keeps one clock per range for all workers: only the first one's push of an iteration counts."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

FAILS = {
    "duplicates": "another worker's push with the same clock, is not applied",
    "acknowledged": "with all pushes of earlier rounds",
}

right = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "reference.py")))
cut, HashRing, moving, serve, Client = right.cut, right.HashRing, right.moving, right.serve, right.Client


class Store(right.Store):
    def push(self, number, worker, clock, gradient):
        return super().push(number, 0, clock, gradient)
