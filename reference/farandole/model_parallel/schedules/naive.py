"""The naive schedule: one micro-batch at a time, so that one stage works and the others wait.

It is what a model that was merely cut into parts does (documents 000, 003 and 004). It needs the
least memory, and wastes (p − 1)/p of p devices:

    bubble/total = (p − 1)/p    whatever the number of micro-batches
    stash        = 1            micro-batch held at most

Cost at each border of two stages, for a batch with b bytes of activations there: b forward, and b backward.
"""

from __future__ import annotations

from collections.abc import Iterator

from farandole.model_parallel.steps import Backward, Computation, Forward, Schedule, Update


def computations(stage: int, stages: int, micro_batches: int) -> Iterator[Computation]:
    for micro_batch in range(micro_batches):
        yield Forward(micro_batch)
        yield Backward(micro_batch)
    yield Update()


NAIVE = Schedule("naive", computations)
