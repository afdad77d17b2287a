"""Begins no reduction of a bucket with a gradient that does not come."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

FAILS = {
    "unused parameters": "a gradient is not used it does not come, but other ranks may have one, and wait",
}

right = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "reference.py")))


class Overlapped(right.Overlapped):
    def step(self, samples, share):
        self.share, self.reductions = share, []
        self.missing = [len(bucket) for bucket in self.buckets]
        self.network.backward(samples, self.is_there)
        while len(self.reductions) < len(self.buckets) and not self.missing[len(self.reductions)]:
            self.hand_over_next()
        for reduction in self.reductions:
            reduction.wait()
        self.network.update()


cut = right.cut
