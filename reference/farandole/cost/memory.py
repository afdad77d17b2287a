"""The memory of each rank of a large training, by component: the formulas of the parts that run here, put together.

    parameters, gradients, optimizer state    bytes per parameter × the stage's parameters/T, divided as ZeRO's stage
                                              says (`sharded.stages.held`)
    gathered                                  the largest layer, whole for a moment, where gradients (stage 2) or
                                              parameters too (stage 3) are divided
    activations                               what a micro-batch leaves in the stage's layers (`activations`) ×
                                              the schedule's own count of micro-batches under way (`most_held`)

Left out are buffers of libraries, fragmentation, and what a layer computes with for a moment. Sources: Rajbhandari et
al., "ZeRO", 2020; Korthikanti et al., "Reducing activation recomputation in large transformer models", 2022.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from farandole.cost.training_plan import Piece, TrainingPlan
from farandole.model_parallel import activations
from farandole.model_parallel.step_costs import most_held
from farandole.models.shape import Shape
from farandole.models.training_state import BytesPerParameter
from farandole.sharded.stages import Sizes, held, is_divided


@dataclass(frozen=True)
class Numbers:
    """The formats of what is kept.

    Attributes:
        each: bytes per parameter, by kind.
        itemsize: bytes of an activation.
        fused: attention keeps no square of positions.
        dropout: whether the model has it.
    """

    each: BytesPerParameter
    itemsize: int = 2
    fused: bool = False
    dropout: bool = True


@dataclass(frozen=True)
class RankMemory:
    """Bytes on one rank; None where the model's shape is not known."""

    parameters: float
    gradients: float
    optimizer_state: float
    gathered: float | None = None
    activations: float | None = None

    @property
    def total(self) -> float:
        return self.parameters + self.gradients + self.optimizer_state + (self.gathered or 0) + (self.activations or 0)


def of_parameters(parameters: float, plan: TrainingPlan, each: BytesPerParameter) -> RankMemory:
    """Return what a rank holds of a model of which only the number of parameters is known, in equal parts."""
    own = parameters / (plan.tensor * plan.pipeline)
    return RankMemory(**held({kind: own * size for kind, size in asdict(each).items()}, plan.zero, plan.copies))


def by_stage(shape: Shape, plan: TrainingPlan, numbers: Numbers) -> list[RankMemory]:
    """Return what a rank of each stage of the pipeline holds.

    Raises:
        UsageError: the model or the micro-batches cannot be divided in this way.
    """
    found = []
    for stage, pieces in enumerate(plan.stages(shape)):
        own = sum(_parameters(shape, plan, piece) for piece in pieces.values())
        kinds = held({kind: own * size for kind, size in asdict(numbers.each).items()}, plan.zero, plan.copies)
        kept = _activations(shape, plan, numbers, stage, pieces)
        found.append(RankMemory(**kinds, gathered=_gathered(shape, plan, numbers, pieces), activations=kept))
    return found


def _parameters(shape: Shape, plan: TrainingPlan, piece: Piece) -> float:
    size = piece.layers * shape.block_parameters(plan.tensor)
    size += shape.embedding_parameters(plan.tensor) if piece.first else 0
    return size + (shape.head_parameters(plan.tensor, apart=not piece.first) if piece.last else 0)


def _gathered(shape: Shape, plan: TrainingPlan, numbers: Numbers, pieces: dict[int, Piece]) -> float:
    """Return the bytes of the largest layer, of each kind that is divided and needed whole."""
    layers = [shape.block_parameters(plan.tensor)]
    layers += [shape.embedding_parameters(plan.tensor)] if any(piece.first for piece in pieces.values()) else []
    layers += [shape.head_parameters(plan.tensor, apart=True)] if any(piece.last for piece in pieces.values()) else []
    kinds = [kind for kind in ("gradients", "parameters") if is_divided(kind, plan.zero) and plan.copies > 1]
    each = asdict(numbers.each)
    return sum(Sizes([round(layer * each[kind]) for layer in layers], 0, 0).in_flight(prefetch=False) for kind in kinds)


def per_layer(shape: Shape, plan: TrainingPlan, numbers: Numbers) -> tuple[float, float]:
    """Return the bytes that a micro-batch leaves in one block on a rank, and what its backward pass adds to them."""
    fused, dropout = numbers.fused, numbers.dropout
    block = activations.block(shape.hidden, shape.heads, shape.sequence, numbers.itemsize, fused=fused, dropout=dropout)
    positions = plan.micro_batch * shape.sequence / plan.context
    everything = positions * block.on_rank(plan.tensor, sequence=plan.sequence_parallel)
    if plan.recompute == "none":
        return everything, 0.0
    if plan.recompute == "selective":
        attention = positions * block.attention / plan.tensor
        return everything - attention, attention
    inputs = positions * numbers.itemsize * shape.hidden
    return inputs, everything - inputs


def _activations(shape: Shape, plan: TrainingPlan, numbers: Numbers, stage: int, pieces: dict[int, Piece]) -> float:
    """Return the most that a stage's micro-batches leave at once, by its schedule."""
    left, more = per_layer(shape, plan, numbers)
    per_piece = plan.recompute == "stage"
    kept = {chunk: left * (1 if per_piece else piece.layers) for chunk, piece in pieces.items()}
    again = {chunk: (left + more) * piece.layers - left if per_piece else more for chunk, piece in pieces.items()}
    positions = plan.micro_batch * shape.sequence / plan.context
    head = activations.head(shape.hidden, shape.vocabulary, numbers.itemsize)
    for chunk, piece in pieces.items():
        if piece.first and numbers.dropout:  # the mask after the embedding
            kept[chunk] += positions * activations.Kept(shape.hidden, 0).on_rank(
                plan.tensor, sequence=plan.sequence_parallel
            )
        if piece.last:  # with a stage computed again at the same time as its layers, else let go of before them
            of_head = positions * head.on_rank(plan.tensor, sequence=plan.sequence_parallel)
            kept[chunk] += 0 if per_piece else of_head
            again[chunk] = again[chunk] + of_head if per_piece else max(0, again[chunk] - of_head)
    schedule = plan.pipeline_schedule
    return most_held(
        schedule.computations(stage, plan.pipeline, plan.micro_batches),
        {chunk: round(nbytes) for chunk, nbytes in kept.items()},
        again={chunk: round(nbytes) for chunk, nbytes in again.items()},
    )
