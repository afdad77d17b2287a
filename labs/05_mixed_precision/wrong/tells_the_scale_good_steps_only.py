"""Leaves out the step without a word to the scale, so that the next one overflows too."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import numpy as np

FAILS = {"skip": "rank 0 calls observe 1 time in 2 steps: it wants to hear of each step once"}

right = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "reference.py")))


class MixedPrecision(right.MixedPrecision):
    def finish(self, gradient):
        self.comm.all_reduce(gradient)
        if np.isfinite(gradient).all():
            self.scale.observe(True)
            self.update(gradient)


LossScale = right.LossScale
