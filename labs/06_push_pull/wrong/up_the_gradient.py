"""Adds the gradient to the parameters, where it has to be subtracted."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

FAILS = {
    "store": "they go down, against the gradient",
    "acknowledged": "everything with the wrong sign",
    "two servers": "everything with the wrong sign",
}

right = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "reference.py")))
cut, HashRing, moving, serve, Client = right.cut, right.HashRing, right.moving, right.serve, right.Client


class Store(right.Store):
    def push(self, number, worker, clock, gradient):
        return super().push(number, worker, clock, -gradient)
