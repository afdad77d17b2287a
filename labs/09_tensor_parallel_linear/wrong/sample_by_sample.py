"""Sums up each sample by itself: the right bytes, in many more messages."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import numpy as np

FAILS = {
    "messages": "sent 36 messages; one all-reduce, of the whole batch together, sends 6",
}

right = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "reference.py")))


def each_by_itself(part, comm):
    return np.array([right.all_reduce(row, comm) for row in part])


class ColumnLinear(right.ColumnLinear):
    def backward(self, gradient):
        self.weight_gradient = self.x.T @ gradient
        self.bias_gradient = gradient.sum(axis=0)
        return each_by_itself(gradient @ self.weight.T, self.comm)


class RowLinear(right.RowLinear):
    def forward(self, x):
        self.x = x
        return each_by_itself(x @ self.weight, self.comm) + self.bias
