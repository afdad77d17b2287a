"""Decides by its own gradient, so that only the rank with the overflow leaves out the step."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import numpy as np

FAILS = {"skip": "step 1, the last rank has an overflow: 31 parameters of rank 0 are infinite or no numbers"}

right = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "reference.py")))


class MixedPrecision(right.MixedPrecision):
    def finish(self, gradient):
        finite = np.isfinite(gradient).all()
        self.comm.all_reduce(gradient)
        self.scale.observe(finite)
        if finite:
            self.update(gradient)


LossScale = right.LossScale
