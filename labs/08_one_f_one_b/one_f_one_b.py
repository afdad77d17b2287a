"""Lab 8: the order in which a pipeline's stages work, so that none waits in vain and none holds too much.

Complete `computations`, then: farandole lab check 8
"""

from __future__ import annotations

from collections.abc import Iterator

from farandole.model_parallel.steps import Backward, Forward, Update


def computations(stage: int, stages: int, micro_batches: int) -> Iterator[Forward | Backward | Update]:
    """What one stage of the pipeline computes, in order, by the schedule 1F1B.

    A generator: yield one computation after the other. Nothing is sent or received here: a `Forward`
    waits by itself until the stage before has sent its outputs, a `Backward` until the stage
    behind has sent its gradient, and both send their own result at once.

        Forward(k)     micro-batch k goes forward through this stage, which holds its activations from then on
        Backward(k)    micro-batch k goes backward, and its activations are forgotten
        Update()       the parameters move by the gradients of all micro-batches; once, at the very end

    Args:
        stage: this stage's number, 0 to stages − 1; the data enter at stage 0, the loss is at the last.
        stages: how many there are, 1 or more.
        micro_batches: into how many the batch is cut, 1 or more, perhaps fewer than there are stages.
    """
    raise NotImplementedError
