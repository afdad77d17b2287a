"""Lets the last stage begin with the longest warm-up, and the first with none."""

from __future__ import annotations

from farandole.model_parallel.steps import Backward, Forward, Update

FAILS = {
    "order": "deadlock: stage 0 waits for the gradient of micro-batch 0 from stage 1; stage 1 waits for the outputs",
    "memory": "stage 1 holds 2 micro-batches",
    "bubble": "deadlock",
    "few micro batches": "stage 2 holds 2 micro-batches",
    "real ranks": "deadlock",
}


def computations(stage, stages, micro_batches):
    warm_up = min(stage, micro_batches)
    for micro_batch in range(warm_up):
        yield Forward(micro_batch)
    for micro_batch in range(micro_batches - warm_up):
        yield Forward(warm_up + micro_batch)
        yield Backward(micro_batch)
    for micro_batch in range(micro_batches - warm_up, micro_batches):
        yield Backward(micro_batch)
    yield Update()
