"""How simulated workers divide a model: stages of a pipeline, tensor ranks within each layer, and data-parallel copies.

    workers = data × stages × tensor        numbered as in `model_parallel.grid`, tensor ranks one after the other

A worker computes for as long as without a division: its part of the model is smaller, and its micro-batches have the
samples of all workers of a pipeline. Without a named model all pieces are equal. With one they are whole layers, as
`TrainingPlan` cuts them, and each piece's time is in proportion to its operations; the last piece has the head, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from farandole.cost.choice import BYTES, GRID, Choice
from farandole.cost.training_plan import TrainingPlan
from farandole.errors import UsageError
from farandole.model_parallel.schedules import choose
from farandole.model_parallel.steps import Schedule
from farandole.models.shape import Shape

# Where they are not given:
MOST_STAGES = 8
PER_STAGE = 4  # micro-batches


@dataclass(frozen=True)
class Division:
    """What each stage holds.

    Attributes:
        data, stages, tensor: the lengths of the axes.
        share: stage → chunk → computing, as a part of an average stage's.
        layers: stage → chunk → number of layers.
        activation: bytes of a micro-batch's outputs between two layers.
    """

    schedule: Schedule
    data: int
    stages: int
    tensor: int
    micro_batches: int
    share: list[list[float]]
    layers: list[list[float]]
    activation: float


def divided(method: str, workers: int, choice: Choice) -> Division:
    """Return the division that is meant by a schedule's name, or by "grid".

    Raises:
        UsageError: the workers do not fill it, or the model has too few layers.
    """
    name, tensor = (choice.schedule, choice.tensor) if method == GRID else (method, 1)
    schedule, model = choose(name, choice.chunks), choice.model
    if workers % tensor:
        raise UsageError(f"{workers} workers are not whole groups of --tensor {tensor}: give a multiple")
    stages = choice.stages or _most_stages(workers // tensor, schedule, model)
    if workers % (stages * tensor):
        each = f"{stages} stages" + (f" × {tensor} tensor ranks" if tensor > 1 else "")
        raise UsageError(f"{workers} workers do not fill pipelines of {each}: give a multiple, or another --stages")
    data, micro_batches = workers // (stages * tensor), choice.micro_batches or PER_STAGE * stages
    if not model:
        chunks, pieces = schedule.placement.passes, schedule.placement.pieces(stages)
        share, layers = [[1 / chunks] * chunks] * stages, [[choice.units / pieces] * chunks] * stages
        return Division(schedule, data, stages, tensor, micro_batches, share, layers, choice.activation)
    if schedule.placement.pieces(stages) > model.layers:
        raise UsageError(
            f"{name}: {model.layers} layers cannot be cut into {schedule.placement.pieces(stages)} pieces: give fewer "
            "--stages"
        )
    batch = data * micro_batches * choice.micro_batch
    plan = TrainingPlan(workers, tensor, stages, 1, choice.micro_batch, batch, name, choice.chunks)
    held = plan.stages(model)
    layers = [[float(piece.layers) for piece in own.values()] for own in held]
    head = (model.operations - model.block_operations) / model.block_operations * model.layers  # in layers
    whole = (model.layers + head) / stages
    share = [[(piece.layers + piece.last * head) / whole for piece in own.values()] for own in held]
    activation = BYTES * model.boundary(choice.micro_batch)
    return Division(schedule, data, stages, tensor, micro_batches, share, layers, activation)


def _most_stages(workers: int, schedule: Schedule, model: Shape | None) -> int:
    """Return the largest divisor of the number of workers, up to 8, into which the model's layers can be cut."""
    fitting = (stages for stages in range(1, MOST_STAGES + 1) if workers % stages == 0)
    return max(
        stages for stages in fitting if stages == 1 or not model or schedule.placement.pieces(stages) <= model.layers
    )
