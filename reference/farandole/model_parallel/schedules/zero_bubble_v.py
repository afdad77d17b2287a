"""ZB-V: no bubble with the memory of 1F1B, from two pieces of the model on each rank, placed in a V.

Stage s holds the pieces s and 2p − 1 − s: micro-batches go down from the first stage to the last one, and up again. The
first stage holds both ends of the model, so it computes the loss, and its gradients are back as early as the last
stage's: no stage has to hold more micro-batches than others. A stage goes forward until the first micro-batch comes up
again, then alternates between its pieces, each forward, backward for the inputs (B) and for the parameters (W). At the
end the last 2s gradients of parameters wait, so that the stages before get theirs sooner:

    idle  = 0    per batch, where batches follow each other, with F = B = W and m ≥ 2p − 1 micro-batches
    stash = min(2p, 2m, m + s + 1)    chunks held at most by stage s; 2p are the activations of p micro-batches

The stages begin and end one after the other, each (F + B)/4 later; see `zero_bubble_h2` for why no optimizer step has
to be synchronised here. The order is fixed, and made for equal times. Otherwise

    idle  = (p − 1)(max(F, B) − W)     with W ≤ F, B and m ≥ 2p − 1
    idle  = (2p − 1 − m)·F             with F = B = W and m < 2p − 1

Cost: twice as many messages as 1F1B, less those at the point of the V. Source: Qi et al., "Zero bubble pipeline
parallelism", 2023; and "Pipeline parallelism with controllable memory", 2024, which finds such schedules as repetitions
of a block, with less memory too.
"""

from __future__ import annotations

from collections.abc import Iterator

from farandole.model_parallel.placement import VShape
from farandole.model_parallel.schedules.phases import WEIGHTS, Phases, in_phases
from farandole.model_parallel.steps import BackwardInput, Computation, Forward, Schedule

DOWN, UP = 0, 1  # the chunks
FORWARD_DOWN, FORWARD_UP = (Forward, DOWN), (Forward, UP)
INPUTS_DOWN, INPUTS_UP = (BackwardInput, DOWN), (BackwardInput, UP)


def computations(stage: int, stages: int, micro_batches: int) -> Iterator[Computation]:
    full = max(micro_batches, 2 * stages - 1)  # for fewer, passes are left out
    below = stages - stage  # stages from this one to the point of the V
    phases: Phases = [
        (2 * below - 1, [FORWARD_DOWN]),  # until the first micro-batch comes up
        (stage, [FORWARD_UP, FORWARD_DOWN]),  # until it is at the end of the model
        (below, [FORWARD_UP, INPUTS_UP, WEIGHTS]),
        (full - stages, [FORWARD_DOWN, INPUTS_DOWN, WEIGHTS, FORWARD_UP, INPUTS_UP, WEIGHTS]),
        (stage, [INPUTS_DOWN, INPUTS_UP]),
        (below, [INPUTS_DOWN, WEIGHTS]),
        (2 * stage, [WEIGHTS]),
    ]
    return in_phases(phases, [range(micro_batches)] * 2)


ZERO_BUBBLE_V = Schedule("zb-v", computations, VShape(2), halves=True)
