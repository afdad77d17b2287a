"""Sends as many values as the range has, but from the beginning of the gradient."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import numpy as np

FAILS = {
    "acknowledged": "after the pull the parameter of key 3",
    "two servers": "after the pull the parameter of key",
}

right = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "reference.py")))
cut, HashRing, moving, Store, serve = right.cut, right.HashRing, right.moving, right.Store, right.serve


class Client(right.Client):
    def push(self, numbers, clock, gradient):
        applied = 0
        for number in numbers:
            part = self.ranges[number]
            moved = np.zeros(len(gradient))
            moved[part.start : part.stop] = gradient[: len(part)]
            applied += super().push([number], clock, moved)
        return applied
