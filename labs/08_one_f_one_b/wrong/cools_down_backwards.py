"""Takes the micro-batches that are left back in the opposite order."""

from __future__ import annotations

from farandole.model_parallel.steps import Backward, Forward, Update

FAILS = {
    "bubble": "stage 0 ends with Backward(1) at 17, and could at 15",
    "few micro batches": "do the micro-batches go backward in the order",
}


def computations(stage, stages, micro_batches):
    warm_up = min(stages - stage - 1, micro_batches)
    for micro_batch in range(warm_up):
        yield Forward(micro_batch)
    for micro_batch in range(micro_batches - warm_up):
        yield Forward(warm_up + micro_batch)
        yield Backward(micro_batch)
    for micro_batch in reversed(range(micro_batches - warm_up, micro_batches)):
        yield Backward(micro_batch)
    yield Update()
