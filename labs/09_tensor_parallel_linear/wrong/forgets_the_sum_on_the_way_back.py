"""Hands back what its own columns contribute to the gradient of x, as if x had been used nowhere else."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

FAILS = {
    "column backward": "add up what all contribute",
    "uneven sizes": "add up what all contribute",
    "bytes": "ColumnLinear.backward on rank 0 sent 0 bytes; an all-reduce of its result sends 864",
    "messages": "ColumnLinear.backward on rank 0 sent 0 messages",
    "training": "by the dense layer",
}

right = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "reference.py")))
RowLinear = right.RowLinear


class ColumnLinear(right.ColumnLinear):
    def backward(self, gradient):
        self.weight_gradient = self.x.T @ gradient
        self.bias_gradient = gradient.sum(axis=0)
        return gradient @ self.weight.T
