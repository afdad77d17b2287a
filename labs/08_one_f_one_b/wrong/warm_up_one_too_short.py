"""Goes forward once too seldom before the first turn: whoever is behind has to wait."""

from __future__ import annotations

from farandole.model_parallel.steps import Backward, Forward, Update

FAILS = {
    "bubble": "the last stage waits from 4 to 7 for Forward(1)",
    "few micro batches": "the last stage waits from 5 to 8 for Forward(1)",
}


def computations(stage, stages, micro_batches):
    warm_up = min(max(stages - stage - 2, 0), micro_batches)
    for micro_batch in range(warm_up):
        yield Forward(micro_batch)
    for micro_batch in range(micro_batches - warm_up):
        yield Forward(warm_up + micro_batch)
        yield Backward(micro_batch)
    for micro_batch in range(micro_batches - warm_up, micro_batches):
        yield Backward(micro_batch)
    yield Update()
