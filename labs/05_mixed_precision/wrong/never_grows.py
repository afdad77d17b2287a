"""Halves the scale, and never tries a larger one."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

FAILS = {"scale": "after 3 good steps the value is 8, and should be 16"}

right = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "reference.py")))


class LossScale(right.LossScale):
    def observe(self, finite):
        if not finite:
            super().observe(finite)


MixedPrecision = right.MixedPrecision
