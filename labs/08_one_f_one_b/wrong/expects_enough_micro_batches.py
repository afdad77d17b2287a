"""Warms up with micro-batches that do not exist when there are fewer than stages."""

from __future__ import annotations

from farandole.model_parallel.steps import Backward, Forward, Update

FAILS = {
    "few micro batches": "stage 0 yields Forward(1), and the last micro-batch is 0",
}


def computations(stage, stages, micro_batches):
    warm_up = stages - stage - 1
    for micro_batch in range(warm_up):
        yield Forward(micro_batch)
    for micro_batch in range(micro_batches - warm_up):
        yield Forward(warm_up + micro_batch)
        yield Backward(micro_batch)
    for micro_batch in range(micro_batches - warm_up, micro_batches):
        yield Backward(micro_batch)
    yield Update()
