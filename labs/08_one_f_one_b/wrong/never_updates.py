"""Computes all gradients and does nothing with them."""

from __future__ import annotations

from farandole.model_parallel.steps import Backward, Forward

FAILS = {
    "one update": "never updates its parameters",
    "few micro batches": "never updates its parameters",
    "real ranks": "the weights that it began with",
}


def computations(stage, stages, micro_batches):
    warm_up = min(stages - stage - 1, micro_batches)
    for micro_batch in range(warm_up):
        yield Forward(micro_batch)
    for micro_batch in range(micro_batches):
        if warm_up + micro_batch < micro_batches:
            yield Forward(warm_up + micro_batch)
        yield Backward(micro_batch)
