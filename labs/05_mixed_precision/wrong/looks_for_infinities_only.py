"""Takes what is no number for a good gradient: an infinite one and its opposite make one."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import numpy as np

FAILS = {"skip": "step 3, the first and the last rank have one, of opposite signs: 31 parameters of rank 0"}

right = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "reference.py")))


class MixedPrecision(right.MixedPrecision):
    def finish(self, gradient):
        self.comm.all_reduce(gradient)
        overflow = np.isinf(gradient).any()
        self.scale.observe(not overflow)
        if not overflow:
            self.update(gradient)


LossScale = right.LossScale
