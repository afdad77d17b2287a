"""The bytes that each rank of a large training sends in a step, by axis: counted over the schedules that run here.

For a micro-batch of b sequences of s positions and width h, in numbers of 2 bytes, each rank sends

    tensor      8bsh(t − 1)/t per layer      four ring all-reduces: two forward, two backward; six with full
                                             recomputation. Reduce-scatters and all-gathers, where the tensor ranks
                                             divide the sequence too, send as much
    pipeline    bsh per message              as many messages as its schedule has; bsh/t where the
                                             tensor ranks divide the sequence, or each sends its part of it
    data        2(d − 1)/d·Ψ per step        a ring all-reduce of the gradient of the rank's Ψ parameters; with ZeRO's
                                             stages 1 and 2 in its two halves, with stage 3 half as much again

Context ranks, which pass keys and values, are not counted. Sources: Narayanan et al., "Efficient large-scale language
model training on GPU clusters using Megatron-LM", 2021, section 3.2; Rajbhandari et al., "ZeRO", 2020, section 7.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from farandole.collectives.costs import coefficients
from farandole.collectives.ring import RING
from farandole.cost.training_plan import TrainingPlan
from farandole.model_parallel.checker import Execution, execute
from farandole.model_parallel.schedules import choose
from farandole.model_parallel.step_order import SHIPMENTS
from farandole.model_parallel.steps import Times, with_messages
from farandole.models.shape import Shape
from farandole.sharded.steps import halves


@dataclass(frozen=True)
class Volume:
    """The messages that one rank sends in a step on one axis.

    Attributes:
        messages: one after the other.
        nbytes: of all of them.
    """

    messages: float
    nbytes: float


def executed(plan: TrainingPlan, backward: float = 2.0) -> Execution:
    """Run the plan's schedule in simulated time.

    Args:
        backward: how long a backward pass takes, in forward passes; its second half takes as long as one.
    """
    return _executed(plan.schedule, plan.chunks, plan.pipeline, plan.micro_batches, backward)


@lru_cache
def _executed(schedule: str, chunks: int, stages: int, micro_batches: int, backward: float) -> Execution:
    return execute(choose(schedule, chunks), stages, micro_batches, Times(backward_input=backward - 1))


@lru_cache
def _most_messages(schedule: str, chunks: int, stages: int, micro_batches: int) -> int:
    """Return how many messages the busiest stage sends to others."""
    chosen = choose(schedule, chunks)

    def sent(stage: int) -> int:
        computations = chosen.computations(stage, stages, micro_batches)
        steps = with_messages(computations, stage, stages, chosen.placement)
        return sum(isinstance(step, SHIPMENTS) and step.peer != stage for step in steps)

    return max(map(sent, range(stages)))


def all_reduces(plan: TrainingPlan) -> int:
    """Return how often a layer's tensor ranks add up their activations for one micro-batch."""
    return 6 if plan.recompute in ("full", "stage") else 4


def volumes(shape: Shape, plan: TrainingPlan, itemsize: int = 2) -> dict[str, Volume]:
    """Return what the busiest rank sends in a step, for each axis that has several ranks.

    Args:
        itemsize: bytes of a number.
    """
    stages = plan.stages(shape)
    layers = max(sum(piece.layers for piece in pieces.values()) for pieces in stages)
    activation = plan.micro_batch * shape.sequence / plan.context * shape.hidden * itemsize
    found = {}
    if plan.tensor > 1:
        number = all_reduces(plan) * layers * plan.micro_batches
        alphas, betas, _ = coefficients(RING, plan.tensor)
        found["tensor"] = Volume(number * alphas, number * betas * activation)
    if plan.pipeline > 1:
        messages = _most_messages(plan.schedule, plan.chunks, plan.pipeline, plan.micro_batches)
        found["pipeline"] = Volume(messages, messages * activation / (plan.tensor if plan.sequence_parallel else 1))
    if plan.copies > 1:
        parameters = shape.parameters / (plan.tensor * plan.pipeline)
        found["data"] = gradients(parameters * itemsize, plan.zero, plan.copies)
    return found


def gradients(nbytes: float, zero: int, ranks: int) -> Volume:
    """Return what a rank sends to add up gradients of `nbytes`, and with ZeRO to gather parameters of as many."""
    alphas, betas, _ = coefficients(RING, ranks)
    more = halves(zero) / 2 if zero else 1.0
    return Volume(more * alphas, more * betas * nbytes)
