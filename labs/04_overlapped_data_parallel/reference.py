"""The method of farandole/data_parallel/overlapped.py in the form of this lab; the buckets are its own.

There backward calls hooks that torch keeps, and a separate thread sends, by one of our all-reduces.
"""

from __future__ import annotations

from collections.abc import Sequence

from farandole.data_parallel import buckets
from farandole_tools.lab.background import BackgroundCommunicator, Reduction
from farandole_tools.lab.instrumented_network import Network


def cut(lengths: Sequence[int], most: int) -> list[range]:
    return [bucket.parameters for bucket in buckets.cut(lengths, most)]


class Overlapped:
    def __init__(self, network: Network, comm: BackgroundCommunicator, most: int, overlap: bool = True) -> None:
        self.network, self.comm, self.overlap = network, comm, overlap
        self.buckets = cut(network.lengths, most)
        self.bucket_of = {number: index for index, bucket in enumerate(self.buckets) for number in bucket}
        self.share = 0.0
        self.missing: list[int] = []  # of each bucket, how many gradients
        self.reductions: list[Reduction] = []  # of the buckets handed over, which are the first ones

    def step(self, samples: Sequence[int], share: float) -> None:
        self.share, self.reductions = share, []
        self.missing = [len(bucket) for bucket in self.buckets]
        self.network.backward(samples, self.is_there)
        while len(self.reductions) < len(self.buckets):  # also those of which some gradients never come
            self.hand_over_next()
        for reduction in self.reductions:
            reduction.wait()
        self.network.update()

    def is_there(self, number: int) -> None:
        self.missing[self.bucket_of[number]] -= 1
        while self.overlap and len(self.reductions) < len(self.buckets) and not self.missing[len(self.reductions)]:
            self.hand_over_next()

    def hand_over_next(self) -> None:
        bucket = self.buckets[len(self.reductions)]
        part = self.network.gradients[self.network.places[bucket[0]].start : self.network.places[bucket[-1]].stop]
        part *= self.share
        self.reductions.append(self.comm.begin(part))
