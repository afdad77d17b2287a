"""The division of a model over simulated workers: pipeline stages, tensor ranks in each layer, data-parallel copies.

    workers = data × shard × stages × expert × context × tensor        numbered as in `model_parallel.grid`

Shard, expert and context ranks are for the method "grid" alone (`grid_messages`). With the tensor ranks they are one
stage of one pipeline, since they exchange messages in each layer.

A worker computes for as long as without a division: its part of the model is smaller, and its micro-batches have the
samples of all workers of a pipeline. Without a named model all pieces are equal. With one they are whole layers, as
`TrainingPlan` cuts them, and each piece's time is in proportion to its operations; the last piece has the head, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from farandole.cost.choice import BYTES, GRID, Choice
from farandole.cost.training_plan import TrainingPlan
from farandole.errors import UsageError
from farandole.grid.options import SCHEDULES
from farandole.model_parallel.grid import Grid
from farandole.model_parallel.schedules import choose
from farandole.model_parallel.steps import Schedule
from farandole.models.shape import Shape

# Where they are not given:
MOST_STAGES = 8
PER_STAGE = 4  # micro-batches

OPTIONS = {"shard": "shard-ranks", "expert": "expert-ranks", "context": "context-ranks"}


@dataclass(frozen=True)
class Division:
    """The part of the model that each stage holds.

    Attributes:
        grid: the lengths of the axes.
        share: stage → chunk → computing, as a part of an average stage's.
        layers: stage → chunk → number of layers.
        activation: bytes of a micro-batch's outputs between two layers, at one worker's positions.
        ends: stage → chunk → whether the embedding and the head are in it.
        attention: stage → chunk → the part of its computing that attention takes; 0 where it is not known.
    """

    schedule: Schedule
    grid: Grid
    micro_batches: int
    share: list[list[float]]
    layers: list[list[float]]
    activation: float
    ends: list[list[tuple[bool, bool]]]
    attention: list[list[float]]

    @property
    def data(self) -> int:
        return self.grid.data

    @property
    def stages(self) -> int:
        return self.grid.pipeline

    @property
    def tensor(self) -> int:
        return self.grid.tensor


def divided(method: str, workers: int, choice: Choice) -> Division:
    """Return the division that is meant by a schedule's name, or by "grid".

    Raises:
        UsageError: the workers do not fill it, or the model has too few layers.
    """
    name, lengths = (choice.schedule, _lengths(choice)) if method == GRID else (method, {"tensor": 1})
    schedule, model, each = choose(name, choice.chunks), choice.model, prod(lengths.values())
    if workers % each:
        raise UsageError(f"{workers} workers are not whole groups of {_named(lengths)}: give a multiple")
    stages = choice.stages or _most_stages(workers // each, schedule, model)
    if workers % (stages * each):
        of = f"{stages} stages" + "".join(f" × {ranks} {axis} ranks" for axis, ranks in lengths.items() if ranks > 1)
        raise UsageError(f"{workers} workers do not fill pipelines of {of}: give a multiple, or another --stages")
    grid = Grid(data=workers // (stages * each), pipeline=stages, **lengths)
    micro_batches = choice.micro_batches or PER_STAGE * stages
    if not model:
        chunks, pieces = schedule.placement.passes, schedule.placement.pieces(stages)
        share, layers = [[1 / chunks] * chunks] * stages, [[choice.units / pieces] * chunks] * stages
        ends, attention = [[(False, False)] * chunks] * stages, [[0.0] * chunks] * stages
        activation = choice.activation / grid.context
        return Division(schedule, grid, micro_batches, share, layers, activation, ends, attention)
    if schedule.placement.pieces(stages) > model.layers:
        raise UsageError(
            f"{name}: {model.layers} layers cannot be cut into {schedule.placement.pieces(stages)} pieces: give fewer "
            "--stages"
        )
    batch = grid.data * grid.shard * grid.expert * micro_batches * choice.micro_batch
    plan = TrainingPlan(workers, grid.tensor, stages, grid.context, choice.micro_batch, batch, name, choice.chunks)
    held = plan.stages(model)
    layers = [[float(piece.layers) for piece in own.values()] for own in held]
    head = (model.operations - model.block_operations) / model.block_operations * model.layers  # in layers
    whole = (model.layers + head) / stages
    share = [[(piece.layers + piece.last * head) / whole for piece in own.values()] for own in held]
    in_a_layer = model.attention_operations / model.block_operations
    attention = [
        [in_a_layer * piece.layers / (piece.layers + piece.last * head) for piece in own.values()] for own in held
    ]
    ends = [[(piece.first, piece.last) for piece in own.values()] for own in held]
    activation = BYTES * model.boundary(choice.micro_batch) / grid.context
    return Division(schedule, grid, micro_batches, share, layers, activation, ends, attention)


def _lengths(choice: Choice) -> dict[str, int]:
    """Return the lengths of a grid's axes within a pipeline's stage.

    Raises:
        UsageError: something cannot be divided so.
    """
    shard, expert, context, experts = choice.shard_ranks, choice.expert_ranks, choice.context_ranks, choice.experts
    if choice.has_six_axes and choice.schedule not in SCHEDULES:
        raise UsageError(
            f"--schedule {choice.schedule}: a grid with shard, expert or context ranks runs {' or '.join(SCHEDULES)}"
        )
    if expert > 1 and not experts:
        raise UsageError(f"--expert-ranks {expert} have no experts to divide: give --experts, such as 8")
    if experts % expert:
        fitting = max(each for each in range(1, expert) if experts % each == 0)
        raise UsageError(f"--expert-ranks {expert} does not divide {experts} experts: give {fitting}")
    if experts and choice.top_k > experts:
        raise UsageError(f"--top-k {choice.top_k} is more than --experts {experts}: give at most as many")
    if choice.model and choice.model.sequence % context:
        fitting = max(each for each in range(1, context) if choice.model.sequence % each == 0)
        raise UsageError(f"--context-ranks {context} does not divide {choice.model.sequence} positions: give {fitting}")
    return {"shard": shard, "expert": expert, "context": context, "tensor": choice.tensor}


def _named(lengths: Mapping[str, int]) -> str:
    """Return the options that give these lengths."""
    return " × ".join(f"--{OPTIONS.get(axis, axis)} {ranks}" for axis, ranks in lengths.items() if ranks > 1)


def _most_stages(workers: int, schedule: Schedule, model: Shape | None) -> int:
    """Return the largest divisor of the number of workers, up to 8, into which the model's layers can be cut."""
    fitting = (stages for stages in range(1, MOST_STAGES + 1) if workers % stages == 0)
    return max(
        stages for stages in fitting if stages == 1 or not model or schedule.placement.pieces(stages) <= model.layers
    )
