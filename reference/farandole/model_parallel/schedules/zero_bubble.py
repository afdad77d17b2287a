"""Zero-bubble (ZB-H1): the stage before waits for the inputs' gradient only, so the parameters' can wait.

A backward pass has two halves. The gradient of the inputs is sent on at once, so that the pipeline
drains in half the time; the gradient of the parameters fills the time that 1F1B would wait. Stage s
computes it s micro-batches late, so that each stage holds p micro-batches, what 1F1B needs at its
first stage:

    idle  = (p − 1)(F + B − W)    instead of 1F1B's (p − 1)(F + B + W)
    stash = min(p, m)             micro-batches held at most, on every stage

with F forward, B backward for the inputs and W for the parameters; a third, if they are equal. A W
that is longer than F or B fills no more than the shorter of these, and fewer micro-batches than
stages leave less to fill with:

    idle  = (p − 1)(F + B) − (min(p, m) − 1)·min(F, B, W)    m micro-batches

(Where batches follow each other, min(F, W): with a short B the last stage ends last, but it has also begun last.)

What is left over is the filling, which `zero_bubble_h2` removes by holding more micro-batches and `zero_bubble_v` by
two pieces of the model on each rank. Source: Qi et al., "Zero bubble pipeline parallelism", 2023.
"""

from __future__ import annotations

from collections.abc import Iterator

from farandole.model_parallel.steps import BackwardInput, BackwardWeight, Computation, Forward, Schedule, Update


def computations(stage: int, stages: int, micro_batches: int) -> Iterator[Computation]:
    yield from in_halves(stages - stage - 1, stage, micro_batches)


def in_halves(warm_up: int, late: int, micro_batches: int) -> Iterator[Computation]:
    """Yield 1F1B with backward passes in two halves, and the update.

    Args:
        warm_up: forward passes before the first pair of a forward and a backward pass.
        late: by how many micro-batches the parameters' gradients are behind the inputs' gradients.
    """
    warm_up, late = min(warm_up, micro_batches), min(late, micro_batches)
    for micro_batch in range(warm_up):
        yield Forward(micro_batch)
    for micro_batch in range(micro_batches):
        if warm_up + micro_batch < micro_batches:
            yield Forward(warm_up + micro_batch)
        yield BackwardInput(micro_batch)
        if micro_batch >= late:
            yield BackwardWeight(micro_batch - late)
    for micro_batch in range(micro_batches - late, micro_batches):
        yield BackwardWeight(micro_batch)
    yield Update()


ZERO_BUBBLE = Schedule("zero-bubble", computations, halves=True)
