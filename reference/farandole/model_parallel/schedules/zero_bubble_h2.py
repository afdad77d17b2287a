"""ZB-H2: zero-bubble with twice the memory, so that nothing is left to wait for in the filling of the pipeline either.

ZB-H1 (`zero_bubble`) empties the pipeline without idle time, but fills it as 1F1B does. Here stage s starts with twice
as many forward passes, 2(p − s − 1), which last until the first gradient is back. It computes the parameters' gradients
2s micro-batches late, twice as many as ZB-H1, so that every stage holds 2p − 1 micro-batches:

    idle  = (p − 1)(F + B − 2W)    per batch, where batches follow each other; 0 where F = B = W
    stash = min(2p − 1, m)         micro-batches held at most, on every stage

with p stages, m micro-batches, F forward, B backward for the inputs and W for the parameters. The last stage begins
(p − 1)F after the first, and ends as much later: a parallelogram. It has no bubble only if a stage begins the next
batch while others are still in this one. In this project it does: each stage updates by itself. The paper's optimizer
has a synchronisation of all stages before the update, for the norm of the whole gradient and for values that are not
finite. It bypasses it by *post-validation*: update, check later, take back where needed. Nothing is to be bypassed
here, so it is left out. The idle time of a single batch is max((p − 1)F, (p − 1)(F + B − 2W)).

A W that is longer than F fills no more than that, and fewer micro-batches leave less to fill with:

    idle  = max(0, (p − 1)(F + B) − min(2(p − 1), m − 1)·min(F, W))

Source: Qi et al., "Zero bubble pipeline parallelism", 2023.
"""

from __future__ import annotations

from collections.abc import Iterator

from farandole.model_parallel.schedules.zero_bubble import in_halves
from farandole.model_parallel.steps import Computation, Schedule


def computations(stage: int, stages: int, micro_batches: int) -> Iterator[Computation]:
    yield from in_halves(2 * (stages - stage - 1), 2 * stage, micro_batches)


ZERO_BUBBLE_H2 = Schedule("zb-h2", computations, halves=True)
