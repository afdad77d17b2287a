"""Turns its matrix once, when the layer is made, and goes backward with that for ever."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

FAILS = {
    "training": "does each pass use weight and bias as they are now",
}

right = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "reference.py")))


class ColumnLinear(right.ColumnLinear):
    def __init__(self, weight, bias, comm):
        super().__init__(weight, bias, comm)
        self.turned = self.weight.T.copy()

    def backward(self, gradient):
        self.weight_gradient = self.x.T @ gradient
        self.bias_gradient = gradient.sum(axis=0)
        return right.all_reduce(gradient @ self.turned, self.comm)


class RowLinear(right.RowLinear):
    def __init__(self, weight, bias, comm):
        super().__init__(weight, bias, comm)
        self.turned = self.weight.T.copy()

    def backward(self, gradient):
        self.weight_gradient = self.x.T @ gradient
        self.bias_gradient = gradient.sum(axis=0)
        return gradient @ self.turned
