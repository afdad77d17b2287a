"""Doubles the scale after every step, once the patience is over."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

FAILS = {"scale": "after 4 good steps the value is 32, and should be 16"}

right = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "reference.py")))


class LossScale(right.LossScale):
    def __init__(self, value=2.0**16, patience=2000):
        self.value, self.patience, self.good = value, patience, 0

    def observe(self, finite):
        self.good = self.good + 1 if finite else 0
        if not finite:
            self.value = max(1.0, self.value / 2)
        elif self.good >= self.patience:
            self.value *= 2


MixedPrecision = right.MixedPrecision
