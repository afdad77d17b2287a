"""Gives every stage the warm-up of the first."""

from __future__ import annotations

from farandole.model_parallel.steps import Backward, Forward, Update

FAILS = {
    "memory": "with Forward(1) stage 1 holds 2 micro-batches",
    "bubble": "is every stage's warm-up as long as it should be?",
    "few micro batches": "with Forward(1) stage 2 holds 2 micro-batches",
}


def computations(stage, stages, micro_batches):
    warm_up = min(stages - 1, micro_batches)
    for micro_batch in range(warm_up):
        yield Forward(micro_batch)
    for micro_batch in range(micro_batches - warm_up):
        yield Forward(warm_up + micro_batch)
        yield Backward(micro_batch)
    for micro_batch in range(micro_batches - warm_up, micro_batches):
        yield Backward(micro_batch)
    yield Update()
