"""A schedule as phases: rows of passes, each repeated some times, without the micro-batches' numbers.

Forward passes of a chunk take its micro-batches in order, and so do its backward passes. `WEIGHTS` computes the
gradient of the parameters that has waited longest, of whichever chunk. What there is nothing to do for is left out, so
a schedule that is written for many micro-batches is also one for few.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from farandole.model_parallel.steps import BackwardInput, BackwardWeight, Computation, Forward, Pass, Update

Slot = tuple[type[Pass], int]  # a kind of pass, and its chunk
Phases = Sequence[tuple[int, Sequence[Slot]]]  # how many times each row is repeated; a negative number is none
WEIGHTS: Slot = (BackwardWeight, 0)


def in_phases(phases: Phases, micro_batches: Sequence[range]) -> Iterator[Computation]:
    """Yield the computations of one stage, and the update.

    Args:
        micro_batches: chunk → those that go through it.
    """
    forward, backward = ([iter(numbers) for numbers in micro_batches] for _ in range(2))
    waiting: deque[BackwardWeight] = deque()
    for times, row in phases:
        for kind, chunk in [*row] * times:
            if kind is BackwardWeight:
                if waiting:
                    yield waiting.popleft()
                continue
            micro_batch = next((forward if kind is Forward else backward)[chunk], None)
            if micro_batch is not None:
                yield kind(micro_batch, chunk)
                if kind is BackwardInput:
                    waiting.append(BackwardWeight(micro_batch, chunk))
    yield Update()
