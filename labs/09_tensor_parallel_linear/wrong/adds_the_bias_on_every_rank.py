"""Adds the bias to every rank's part, before they are added up."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

FAILS = {
    "row forward": "has the bias 4 times: add it once",
    "uneven sizes": "has the bias 4 times",
    "training": "by the dense layer",
}

right = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "reference.py")))
ColumnLinear = right.ColumnLinear


class RowLinear(right.RowLinear):
    def forward(self, x):
        self.x = x
        return right.all_reduce(x @ self.weight + self.bias, self.comm)
