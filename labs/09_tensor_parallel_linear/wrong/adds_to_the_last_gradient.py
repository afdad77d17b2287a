"""Adds every backward pass's gradients to those of the one before."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import numpy as np

FAILS = {
    "training": "contains that of the step before",
}

right = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "reference.py")))


class ColumnLinear(right.ColumnLinear):
    def __init__(self, weight, bias, comm):
        super().__init__(weight, bias, comm)
        self.weight_gradient, self.bias_gradient = np.zeros_like(self.weight), np.zeros_like(self.bias)

    def backward(self, gradient):
        self.weight_gradient += self.x.T @ gradient
        self.bias_gradient += gradient.sum(axis=0)
        return right.all_reduce(gradient @ self.weight.T, self.comm)


class RowLinear(right.RowLinear):
    def __init__(self, weight, bias, comm):
        super().__init__(weight, bias, comm)
        self.weight_gradient, self.bias_gradient = np.zeros_like(self.weight), np.zeros_like(self.bias)

    def backward(self, gradient):
        self.weight_gradient += self.x.T @ gradient
        self.bias_gradient += gradient.sum(axis=0)
        return gradient @ self.weight.T
