"""Takes each micro-batch forward and at once backward, so that one stage works and the others wait."""

from __future__ import annotations

from farandole.model_parallel.steps import Backward, Forward, Update

FAILS = {
    "bubble": "the stages are idle for 50.0% of the total time",
    "few micro batches": "the last stage waits from 5 to 11 for Forward(1)",
}


def computations(stage, stages, micro_batches):
    for micro_batch in range(micro_batches):
        yield Forward(micro_batch)
        yield Backward(micro_batch)
    yield Update()
