"""Scales the loss, and never divides the gradient by the scale."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import numpy as np

FAILS = {
    "steps": "step 0: master moves by the gradient of the scaled loss: divide it by the scale",
    "shares": "master moves by the gradient of the scaled loss",
    "small gradients": "after 4 steps master has moved by",
    "small updates": "after 64 steps master has moved by",
    "any scale": "step 0: 43 parameters are others with a scale of 4096 than with 256",
    "skip": "rank 0 leaves out a step without an overflow",
}

right = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "reference.py")))


class MixedPrecision(right.MixedPrecision):
    def gradient(self, samples, share):
        return super().gradient(samples, share) * np.float32(self.scale.value)


LossScale = right.LossScale
