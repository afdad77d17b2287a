"""Lab 8: order the computations of a pipeline so that no stage waits unnecessarily or holds too many activations.

Complete `computations`, then: farandole lab check 8
"""

from __future__ import annotations

from collections.abc import Iterator

from farandole.model_parallel.steps import Backward, Forward, Update


def computations(stage: int, stages: int, micro_batches: int) -> Iterator[Forward | Backward | Update]:
    """Yield the computations of one pipeline stage, in order, by the schedule 1F1B.

    This is a generator. It sends and receives nothing: a `Forward` waits by itself until the previous
    stage has sent its outputs, a `Backward` until the next stage has sent its gradient, and both send
    their own result at once.

        Forward(k)     pass micro-batch k forward through this stage, which holds its activations from then on
        Backward(k)    pass micro-batch k backward, and release its activations
        Update()       move the parameters by the gradients of all micro-batches; once, at the end

    Args:
        stage: this stage's number, 0 to stages − 1. The data enter at stage 0; the last stage computes the loss.
        stages: the number of stages, 1 or more.
        micro_batches: the number of micro-batches in the batch, 1 or more; it may be smaller than the number of stages.
    """
    raise NotImplementedError
