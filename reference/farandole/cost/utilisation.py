"""Operations of a step of a large training, how much of the peak they use, and how long a step takes.

Model operations are those of forward and backward passes, 72·B·s·l·h²·(1 + s/(6h) + V/(12lh)) for B sequences. Hardware
operations count what is computed again, too: 96·B·s·l·h²·(1 + s/(6h) + V/(16lh)) where each layer is, and
72·B·s·l·h²·(1 + 2s/(9h) + V/(12lh)) where attention's square is: 4·B·l·s²·h more. Korthikanti et al. write s/(3h),
three times as much more (`equation_8`).

    MFU = model operations / (step time × ranks × peak)          model FLOPs utilisation
    HFU = hardware operations / (step time × ranks × peak)       hardware FLOPs utilisation

Of N parameters and D tokens alone: 6·N·D operations, which leaves out attention's square and counts the embedding. A
step is predicted as `modes` does it: the schedule, executed with passes of computing and communicating, and then the
gradients of the data ranks. Nothing overlaps. Sources: Narayanan et al., 2021, equations 3 and 4; Korthikanti et al.,
2022, appendix A; Kaplan et al., "Scaling laws for neural language models", 2020 (6ND); Chowdhery et al., "PaLM", 2022
(MFU).
"""

from __future__ import annotations

from dataclasses import dataclass

from farandole.collectives.costs import Link
from farandole.cost.training_plan import Recompute, TrainingPlan
from farandole.cost.volumes import executed, volumes
from farandole.models.operations import FORWARD_AND_BACKWARD
from farandole.models.shape import Shape


def model_operations(shape: Shape, sequences: int) -> int:
    """Return the operations of forward and backward passes over this number of sequences."""
    return FORWARD_AND_BACKWARD * sequences * shape.operations


def hardware_operations(shape: Shape, sequences: int, recompute: Recompute) -> int:
    """Return the same, with what is computed again."""
    again = {
        "none": 0,
        "selective": shape.attention_operations,
        "full": shape.block_operations,
        "stage": shape.operations,
    }
    return model_operations(shape, sequences) + sequences * again[recompute]


def equation_8(shape: Shape, sequences: int) -> int:
    """Return the hardware operations that Korthikanti et al. count with selective recomputation.

    Their attention takes twice its operations in all three passes; computing only its forward pass again takes a third
    of that more.
    """
    return model_operations(shape, sequences) + FORWARD_AND_BACKWARD * sequences * shape.attention_operations


def of_parameters(parameters: float, tokens: float, recompute: Recompute = "none") -> float:
    """Return 6ND, or 8ND where every layer is computed again; of attention nothing is known."""
    return (8 if recompute in ("full", "stage") else 6) * parameters * tokens


def utilisation(operations: float, seconds: float, ranks: int, peak: float) -> float:
    """Return the part of the ranks' peak that was used, 0 to 1.

    Args:
        peak: operations a second of one rank.
    """
    return operations / (seconds * ranks * peak)


@dataclass(frozen=True)
class StepTime:
    """Seconds of a step on a rank.

    Attributes:
        compute_s: computing.
        bubble_s: waiting for other stages.
        tensor_s, pipeline_s, data_s: communicating on each axis.
    """

    compute_s: float
    bubble_s: float
    tensor_s: float
    pipeline_s: float
    data_s: float

    @property
    def step_s(self) -> float:
        return self.compute_s + self.bubble_s + self.tensor_s + self.pipeline_s + self.data_s


def step_time(
    shape: Shape, plan: TrainingPlan, speed: float, within: Link | None = None, across: Link | None = None
) -> StepTime:
    """Predict the time of a step, with stages of equal work.

    Args:
        speed: operations a second of a rank while it computes.
        within: the link between tensor ranks. None: their messages take no time.
        across: the link between stages and between data ranks. None: as above.
    """
    operations = hardware_operations(shape, plan.sequences, plan.recompute)
    compute_s = operations / plan.ranks / speed
    sent = volumes(shape, plan)
    seconds = {
        axis: each.messages * link.alpha + each.nbytes * link.beta if link else 0.0
        for axis, each in sent.items()
        for link in [within if axis == "tensor" else across]
    }
    tensor_s, pipeline_s, data_s = (seconds.get(axis, 0.0) for axis in ("tensor", "pipeline", "data"))
    bubble_s = (compute_s + tensor_s + pipeline_s) * bubble(shape, plan)
    return StepTime(compute_s, bubble_s, tensor_s, pipeline_s, data_s)


def bubble(shape: Shape, plan: TrainingPlan) -> float:
    """Return the idle time of the plan's schedule over the time of its work, 0 and more."""
    if plan.pipeline == 1:
        return 0.0
    model = model_operations(shape, 1)
    again = (hardware_operations(shape, 1, plan.recompute) - model) / (model / FORWARD_AND_BACKWARD)
    execution = executed(plan, 2 + again)
    took = execution.period if execution.overlaps else execution.total
    return took / (plan.micro_batches * execution.times.both) - 1
