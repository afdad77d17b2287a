"""Casts the parameters in the first step, and computes with these ever after."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import numpy as np

FAILS = {
    "steps": "step 1: master moves by the gradient of the first step's parameters",
    "shares": "the gradient of the first step's parameters: cast master in every step",
    "small gradients": "after 4 steps master has moved by",
}

right = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "reference.py")))


class MixedPrecision(right.MixedPrecision):
    def gradient(self, samples, share):
        if not hasattr(self, "half"):
            self.half = self.master.astype(np.float16)
        scale = self.scale.value
        return self.network.backward(self.half, samples, scale).astype(np.float32) * (share / scale)


LossScale = right.LossScale
