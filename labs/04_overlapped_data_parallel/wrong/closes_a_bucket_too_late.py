"""Closes a bucket only once it has more than it may."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

FAILS = {"buckets": "has 5 elements, and 4 are allowed"}

right = SimpleNamespace(**run_path(str(Path(__file__).parents[1] / "reference.py")))


def cut(lengths, most):
    buckets, stop, elements = [], len(lengths), 0
    for number in reversed(range(len(lengths))):
        elements += lengths[number]
        if elements >= most or number == 0:
            buckets.append(range(number, stop))
            stop, elements = number, 0
    return buckets


class Overlapped(right.Overlapped):
    def __init__(self, network, comm, most, overlap=True):
        super().__init__(network, comm, most, overlap)
        self.buckets = cut(network.lengths, most)
        self.bucket_of = {number: index for index, bucket in enumerate(self.buckets) for number in bucket}
