"""Sends every rank's part to every rank, which adds them up: the right sum, and P/2 times the bytes."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import numpy as np

FAILS = {
    "bytes": "is everybody's part sent to everybody",
    "messages": "RowLinear.forward on rank 0 sent 3 messages",
}

right = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "reference.py")))


def everybodys_sum(part, comm):
    leaving, total = part, part.copy()
    for _ in range(comm.size - 1):
        arriving = np.empty_like(part)
        comm.exchange(leaving, (comm.rank + 1) % comm.size, arriving, (comm.rank - 1) % comm.size)
        total += arriving
        leaving = arriving
    return total


class ColumnLinear(right.ColumnLinear):
    def backward(self, gradient):
        self.weight_gradient = self.x.T @ gradient
        self.bias_gradient = gradient.sum(axis=0)
        return everybodys_sum(gradient @ self.weight.T, self.comm)


class RowLinear(right.RowLinear):
    def forward(self, x):
        self.x = x
        return everybodys_sum(x @ self.weight, self.comm) + self.bias
