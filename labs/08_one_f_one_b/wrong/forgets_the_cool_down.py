"""Ends with the last turn: what the warm-up had ahead never goes backward."""

from __future__ import annotations

from farandole.model_parallel.steps import Backward, Forward, Update

FAILS = {
    "complete": "stage 0 never takes micro-batch 1 backward",
    "order": "stage 0 never takes micro-batch 1 backward",
    "bubble": "stage 0 never takes micro-batch 1 backward",
    "few micro batches": "stage 0 never takes micro-batch 0 backward",
    "real ranks": "stage 0 never takes micro-batch 1 backward",
}


def computations(stage, stages, micro_batches):
    warm_up = min(stages - stage - 1, micro_batches)
    for micro_batch in range(warm_up):
        yield Forward(micro_batch)
    for micro_batch in range(micro_batches - warm_up):
        yield Forward(warm_up + micro_batch)
        yield Backward(micro_batch)
    yield Update()
