"""Sums the gradients up over the ranks in 16 bits."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import numpy as np

FAILS = {
    "steps": "is something in 16 bits after backward, the gradient, its sum or master?",
    "shares": "is something in 16 bits after backward, the gradient, its sum or master?",
    "one message": "step 0: float16 is added up over the ranks: it is to be float32",
}

right = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "reference.py")))


class MixedPrecision(right.MixedPrecision):
    def step(self, samples, share):
        scale = self.scale.value
        half = self.network.backward(self.master.astype(np.float16), samples, scale)
        half = (half.astype(np.float32) * share).astype(np.float16)
        self.comm.all_reduce(half)
        finite = np.isfinite(half).all()
        self.scale.observe(finite)
        if finite:
            self.update(half.astype(np.float32) / scale)


LossScale = right.LossScale
