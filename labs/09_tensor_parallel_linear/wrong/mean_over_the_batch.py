"""Divides the parameters' gradients by the batch, which the loss has done already."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

FAILS = {
    "column backward": "is a mean over the batch",
    "row backward": "is a mean over the batch",
    "uneven sizes": "is a mean over the batch",
    "training": "by the dense layer",
}

right = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "reference.py")))


class ColumnLinear(right.ColumnLinear):
    def backward(self, gradient):
        self.weight_gradient = self.x.T @ gradient / len(gradient)
        self.bias_gradient = gradient.mean(axis=0)
        return right.all_reduce(gradient @ self.weight.T, self.comm)


class RowLinear(right.RowLinear):
    def backward(self, gradient):
        self.weight_gradient = self.x.T @ gradient / len(gradient)
        self.bias_gradient = gradient.mean(axis=0)
        return gradient @ self.weight.T
