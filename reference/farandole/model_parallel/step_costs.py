"""The costs of a schedule's steps: the time of each, and the memory that a stage's computations hold at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from farandole.model_parallel.steps import (
    Backward,
    BackwardInput,
    BackwardWeight,
    Computation,
    Forward,
    Times,
    Update,
)


def duration(step: Computation, times: Times, passes: int) -> float:
    """Return the time of one computation; an update takes no time.

    Args:
        passes: how many chunks of a stage share its work on a micro-batch.
    """
    match step:
        case Forward():
            return times.forward / passes
        case Backward():
            return times.backward / passes
        case BackwardInput():
            return times.backward_input / passes
        case BackwardWeight():
            return times.backward_weight / passes
        case Update():
            return 0.0


def most_held(
    steps: Iterable[Computation],
    kept: Mapping[int, int],
    late: Mapping[int, int] | None = None,
    again: Mapping[int, int] | None = None,
) -> int:
    """Return the largest amount that a stage holds at once, in any unit.

    Args:
        steps: the stage's computations, in order.
        kept: chunk → what a micro-batch leaves there by its forward pass, until its backward pass has ended.
        late: chunk → what stays between the two halves of a backward pass; by default all of it.
        again: chunk → what is computed again, and held only, during a backward pass.
    """
    held = most = 0
    for step in steps:
        match step:
            case Forward(_, chunk):
                held += kept[chunk]
            case Backward(_, chunk):
                most = max(most, held + again[chunk] if again else held)
                held -= kept[chunk]
            case BackwardInput(_, chunk):
                most = max(most, held + again[chunk] if again else held)
                held += (late or kept)[chunk] - kept[chunk]
            case BackwardWeight(_, chunk):
                held -= (late or kept)[chunk]
        most = max(most, held)
    return most
