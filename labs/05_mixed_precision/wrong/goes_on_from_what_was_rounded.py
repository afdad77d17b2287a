"""Updates the copy in 16 bits, so that master forgets what these cannot show."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import numpy as np

FAILS = {
    "steps": "step 1: element",
    "shares": "is something in 16 bits after backward, the gradient, its sum or master?",
    "small updates": "float16 shows no single update, so is each of them added to master, in float32?",
}

right = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "reference.py")))


class MixedPrecision(right.MixedPrecision):
    def update(self, gradient):
        self.master = self.master.astype(np.float16).astype(np.float32) - self.rate * gradient


LossScale = right.LossScale
