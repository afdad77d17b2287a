"""Begins each turn with the backward pass: at the last stage before there is anything to go back with."""

from __future__ import annotations

from farandole.model_parallel.steps import Backward, Forward, Update

FAILS = {
    "order": "micro-batch 0 backward before it has taken it forward",
    "bubble": "micro-batch 0 backward before it has taken it forward",
    "few micro batches": "micro-batch 0 backward before it has taken it forward",
    "real ranks": "micro-batch 0 backward before it has taken it forward",
}


def computations(stage, stages, micro_batches):
    warm_up = min(stages - stage - 1, micro_batches)
    for micro_batch in range(warm_up):
        yield Forward(micro_batch)
    for micro_batch in range(micro_batches - warm_up):
        yield Backward(micro_batch)
        yield Forward(warm_up + micro_batch)
    for micro_batch in range(micro_batches - warm_up, micro_batches):
        yield Backward(micro_batch)
    yield Update()
