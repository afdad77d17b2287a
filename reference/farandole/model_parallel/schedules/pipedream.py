"""PipeDream: 1F1B without a flush. Every batch has its own update, and the pipeline never drains.

The batches are not cut: what follows batch k in the pipeline is batch k + 1, and each update comes
right after its batch's backward pass. So the forward pass of batch k at stage s sees the parameters
after the updates of batches 0 … k − (p − s): p − s − 1 updates fewer than one after the other. By
the time of its backward pass newer ones are there; *weight stashing* keeps those that the forward
pass used, so that the gradient is that of one version: version(backward) = version(forward) at each
stage. Different stages still use different versions, so this is not SGD, but delayed SGD:

    w_s ← w_s − η ∇_s f(w_0 at version k − p + 1, …, w_s at version k − p + 1 + s, …)

With *vertical sync* all stages use the version of the first one: the gradient is that of one model, p − 1 updates old,

    w ← w − η ∇f(w at version k − p + 1)

Cost: up to p − s versions of a stage's parameters, with vertical sync p, and p − s batches' activations. The bubble is
that of filling and draining once in the whole run. Source: Narayanan et al., "PipeDream:
generalized pipeline parallelism for DNN training", 2019.
"""

from __future__ import annotations

from collections.abc import Iterator

from farandole.model_parallel.schedules import one_f_one_b
from farandole.model_parallel.steps import Backward, Computation, Schedule, Update


def computations(stage: int, stages: int, batches: int) -> Iterator[Computation]:
    """All `batches` of a run, each uncut; 1F1B's order, and an update after every backward pass."""
    for step in one_f_one_b.computations(stage, stages, batches):
        if not isinstance(step, Update):
            yield step
        if isinstance(step, Backward):
            yield Update(step.micro_batch)


def version(stage: int, stages: int, batch: int, *, vertical: bool = False) -> int:
    """Return the number of updates in the parameters with which `batch` goes forward and backward.

    Args:
        vertical: with vertical sync, that is as many at every stage as at the first.
    """
    return max(0, batch - (stages - (0 if vertical else stage) - 1))


def most_versions(stage: int, stages: int, batches: int, *, vertical: bool = False) -> int:
    """Return how many versions of its parameters a stage holds at most, in a run of `batches` batches.

    As batch k goes forward, the oldest batch under way is k − (p − s − 1), and its version the oldest that is held. The
    newest is the stage's current one, which with vertical sync a later batch will need.
    """

    def held(batch: int) -> int:
        oldest = version(stage, stages, max(0, batch - (stages - stage - 1)), vertical=vertical)
        return version(stage, stages, batch) - oldest + 1

    return max(held(batch) for batch in range(batches))


PIPEDREAM = Schedule("pipedream", computations, flushes=False)
