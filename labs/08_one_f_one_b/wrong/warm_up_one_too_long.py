"""Goes forward stages − stage times before the first turn, in which it goes forward once more."""

from __future__ import annotations

from farandole.model_parallel.steps import Backward, Forward, Update

FAILS = {
    "memory": "where stages − stage = 1 will do: should Backward(0) not come first?",
    "few micro batches": "where stages − stage = 1 will do",
}


def computations(stage, stages, micro_batches):
    warm_up = min(stages - stage, micro_batches)
    for micro_batch in range(warm_up):
        yield Forward(micro_batch)
    for micro_batch in range(micro_batches - warm_up):
        yield Forward(warm_up + micro_batch)
        yield Backward(micro_batch)
    for micro_batch in range(micro_batches - warm_up, micro_batches):
        yield Backward(micro_batch)
    yield Update()
