"""Asks in a message of its own whether anybody had an overflow."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import numpy as np

FAILS = {"one message": "step 0: all_reduce is called 2 times: once is enough"}

right = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "reference.py")))


class MixedPrecision(right.MixedPrecision):
    def finish(self, gradient):
        overflows = np.array([not np.isfinite(gradient).all()], dtype=np.float32)
        self.comm.all_reduce(overflows)
        if overflows[0]:
            gradient[:] = np.inf
        super().finish(gradient)


LossScale = right.LossScale
