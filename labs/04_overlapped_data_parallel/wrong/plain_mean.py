"""Gives every rank the same weight, however many samples it has."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

FAILS = {
    "weighted mean": "their plain mean: a rank with fewer samples has to count less",
    "one order": "has other values than in one process",
    "unused parameters": "has other values than in one process",
}

right = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "reference.py")))


class Overlapped(right.Overlapped):
    def hand_over_next(self):
        bucket, places = self.buckets[len(self.reductions)], self.network.places
        part = self.network.gradients[places[bucket[0]].start : places[bucket[-1]].stop]
        part /= self.comm.size
        self.reductions.append(self.comm.begin(part))


cut = right.cut
