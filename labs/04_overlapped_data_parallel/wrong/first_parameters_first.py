"""Cuts from the front: the first bucket is of the first parameters, whose gradients come last."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

FAILS = {
    "buckets": "backward has the last parameters' gradients first",
    "early": "is the first bucket that of the last parameters",
    "one order": "is the first bucket that of the last parameters",
}

right = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "reference.py")))


def cut(lengths, most):
    size = len(lengths)
    buckets = right.cut(lengths[::-1], most)
    return [range(size - bucket.stop, size - bucket.start) for bucket in buckets]


class Overlapped(right.Overlapped):
    def __init__(self, network, comm, most, overlap=True):
        super().__init__(network, comm, most, overlap)
        self.buckets = cut(network.lengths, most)
        self.bucket_of = {number: index for index, bucket in enumerate(self.buckets) for number in bucket}
