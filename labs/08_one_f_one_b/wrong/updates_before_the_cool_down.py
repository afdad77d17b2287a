"""Updates at the end of the turns, before the cool-down has brought the last gradients."""

from __future__ import annotations

from farandole.model_parallel.steps import Backward, Forward, Update

FAILS = {
    "one update": "stage 0 updates its parameters before Backward(1)",
    "few micro batches": "stage 0 updates its parameters before Backward(0)",
    "real ranks": "is every gradient there when it updates",
}


def computations(stage, stages, micro_batches):
    warm_up = min(stages - stage - 1, micro_batches)
    for micro_batch in range(warm_up):
        yield Forward(micro_batch)
    for micro_batch in range(micro_batches - warm_up):
        yield Forward(warm_up + micro_batch)
        yield Backward(micro_batch)
    yield Update()
    for micro_batch in range(micro_batches - warm_up, micro_batches):
        yield Backward(micro_batch)
