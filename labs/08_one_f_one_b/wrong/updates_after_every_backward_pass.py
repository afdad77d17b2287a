"""Updates after every backward pass, as PipeDream does, which keeps old parameters for that."""

from __future__ import annotations

from farandole.model_parallel.steps import Backward, Forward, Update

FAILS = {
    "one update": "stage 0 updates its parameters before Backward(1)",
    "few micro batches": "stage 0 updates its parameters before Backward(1)",
    "real ranks": "does it update once?",
}


def computations(stage, stages, micro_batches):
    warm_up = min(stages - stage - 1, micro_batches)
    for micro_batch in range(warm_up):
        yield Forward(micro_batch)
    for micro_batch in range(micro_batches):
        if warm_up + micro_batch < micro_batches:
            yield Forward(warm_up + micro_batch)
        yield Backward(micro_batch)
        yield Update()
