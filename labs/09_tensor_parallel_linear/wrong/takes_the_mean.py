"""Divides by the number of ranks, as the all-reduce of lab 2 does."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

FAILS = {
    "row forward": "is a mean over the ranks",
    "column backward": "is a mean over the ranks",
    "uneven sizes": "is a mean over the ranks",
    "training": "by the dense layer",
}

right = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "reference.py")))


def mean(part, comm):
    return right.all_reduce(part, comm) / comm.size


class ColumnLinear(right.ColumnLinear):
    def backward(self, gradient):
        self.weight_gradient = self.x.T @ gradient
        self.bias_gradient = gradient.sum(axis=0)
        return mean(gradient @ self.weight.T, self.comm)


class RowLinear(right.RowLinear):
    def forward(self, x):
        self.x = x
        return mean(x @ self.weight, self.comm) + self.bias
