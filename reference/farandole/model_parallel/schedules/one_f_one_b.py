"""1F1B: as soon as a micro-batch can go backward it does, so that its activations are freed early.

Stage s starts with p − s − 1 forward passes (warm-up), then takes turns, one forward, one backward
(steady state), and ends with the backward passes that are left (cool-down). The bubble is GPipe's;
what shrinks is the memory: at most p − s micro-batches are held, however many there are.

    bubble/total = (p − 1)/(m + p − 1)    p stages, m micro-batches
    stash        = min(p − s, m)          micro-batches held at most, stage s

Cost at each border of two stages, for a batch with b bytes of activations there: b forward and b backward, as GPipe.

Source: Fan et al., "DAPPLE: a pipelined data parallel approach for training large models", 2021;
Narayanan et al., "Memory-efficient pipeline-parallel DNN training", 2021.
"""

from __future__ import annotations

from collections.abc import Iterator

from farandole.model_parallel.steps import Backward, Computation, Forward, Schedule, Update


def computations(stage: int, stages: int, micro_batches: int) -> Iterator[Computation]:
    warm_up = min(stages - stage - 1, micro_batches)
    for micro_batch in range(warm_up):
        yield Forward(micro_batch)
    for micro_batch in range(micro_batches - warm_up):
        yield Forward(warm_up + micro_batch)
        yield Backward(micro_batch)
    for micro_batch in range(micro_batches - warm_up, micro_batches):
        yield Backward(micro_batch)
    yield Update()


ONE_F_ONE_B = Schedule("1f1b", computations)
