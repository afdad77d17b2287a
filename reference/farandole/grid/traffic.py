"""The bytes that a rank sends in a step, by axis: by formula, and counted.

By formula the bytes follow from the options and the rank's place in the grid; only how many rows an expert gets is
known after the step (`Plan`). Where everything divides evenly these are the terms of the table in
`model_parallel.grid`; here they are those of the schedules that are run, to the byte.
"""

from __future__ import annotations

from collections.abc import Sequence

from farandole.collectives.ring import ALL_GATHER, REDUCE_SCATTER, RING
from farandole.collectives.steps import Schedule, chunk_slices
from farandole.grid.memory import Sizes, sizes
from farandole.grid.training import GridTraining
from farandole.grid.units import COPIES, COPIES_OF_EXPERTS
from farandole.model_parallel.context.placement import length
from farandole.model_parallel.context.traffic import attention_bytes
from farandole.model_parallel.expert.plan import Plan
from farandole.model_parallel.expert.traffic import INTEGER, layer_bytes
from farandole.model_parallel.steps import SendActivation, SendGradient, with_messages
from farandole.model_parallel.zero import ShardedOptimizer


def counted(training: GridTraining) -> dict[str, int]:
    """Return the bytes that this rank has sent so far, by what they were sent for."""
    axes, experts = training.axes, training.experts
    found = {axis: axes.axis(axis).bytes_sent for axis in ("tensor", "context", "expert", "pipeline", "shard")}
    found["counts"] = experts.everyone.bytes_sent if experts else 0
    found["gradients"] = sum(unit.copies.bytes_sent for unit in training.units if unit.copies)
    return found


def by_formula(training: GridTraining, rows: Sequence[int], plans: Sequence[Plan] = ()) -> dict[str, int]:
    """Return the bytes that this rank sends in a step, by what they are sent for.

    Args:
        rows: samples of each of its micro-batches.
        plans: of its mixtures, for all micro-batches.
    """
    known = sizes(training)
    rank, itemsize = training.axes.place["expert"], training.dtype.itemsize
    of_experts = [layer_bytes(plan, rank, training.options.hidden * itemsize) for plan in plans]
    tokens = training.experts.everyone.size if training.experts else 1
    return {
        "tensor": sum(_tensor(training, known, samples) for samples in rows)
        + sum(_tensor_of_experts(training, plan) for plan in plans),
        "context": sum(_context(training, known, samples) for samples in rows),
        "expert": sum(each["forward"] + each["backward"] for each in of_experts),
        "counts": (tokens - 1) * training.options.top_k * training.options.experts * INTEGER * len(plans),
        "pipeline": _pipeline(training, rows),
        "shard": len(rows) * sum(_shard(training, unit.numel) for unit in known.units),
        "gradients": sum(_gradients(training, unit.numel, unit.is_expert) for unit in known.units),
    }


def sent(schedule: Schedule, nbytes: Sequence[int], rank: int, ranks: int) -> int:
    """Return the bytes that `rank` sends in a schedule.

    Args:
        nbytes: of each chunk.
    """
    steps = schedule.steps(rank, ranks) if ranks > 1 else ()
    return sum(nbytes[chunk] for step in steps for each in step.exchanges for chunk in each.sent)


def _in_ring(training: GridTraining, schedule: Schedule, numbers: int, *axes: str) -> int:
    """Return the bytes that this rank sends along these axes for a vector of `numbers` elements."""
    line = training.grid.line(training.world.rank, *axes)
    chunks = chunk_slices(numbers, schedule.chunks(len(line)))
    nbytes = [(part.stop - part.start) * training.dtype.itemsize for part in chunks]
    return sent(schedule, nbytes, line.index(training.world.rank), len(line))


def _tensor(training: GridTraining, known: Sizes, samples: int) -> int:
    """A sum at the end of each pair of matrices, and backward at its beginning; and three numbers per logit's row.

    What is computed again sums up again.
    """
    places = samples * length(training.groups.context.own)
    of_block = 6 if training.options.recompute in ("full", "stage") else 4
    sums = known.embeddings + known.heads + known.blocks * (2 if training.experts else of_block)
    loss = known.heads * (training.grid.tensor - 1) * 3 * places * training.dtype.itemsize
    if training.options.recompute == "stage":
        sums, loss = sums + known.embeddings, 2 * loss
    return sums * _in_ring(training, RING, places * training.options.hidden, "tensor") + loss


def _tensor_of_experts(training: GridTraining, plan: Plan) -> int:
    """Return the bytes of the same sums for the rows of each expert, forward and backward."""
    rows = plan.arriving(training.axes.place["expert"]).sum(0).tolist()
    return sum(2 * _in_ring(training, RING, count * training.options.hidden, "tensor") for count in rows)


def _context(training: GridTraining, known: Sizes, samples: int) -> int:
    """Keys and values of this rank's heads around the ring, and backward once more, with their gradients."""
    group = training.groups.context
    row = samples * known.heads_width * training.dtype.itemsize
    sent = attention_bytes("ring", group.placement, group.rank, row)
    again = training.options.recompute in ("full", "stage")
    return known.blocks * ((1 + again) * sent["forward"] + sent["backward"])


def _pipeline(training: GridTraining, rows: Sequence[int]) -> int:
    """Activations to the next stage, and their gradients to the one before."""
    stage, stages = training.stages
    computations = training.schedule.computations(stage, stages, len(rows))
    vector = length(training.groups.context.own) * training.options.hidden * training.dtype.itemsize
    return sum(
        rows[step.micro_batch] * vector
        for step in with_messages(computations, stage, stages, training.schedule.placement)
        if isinstance(step, SendActivation | SendGradient) and step.peer != stage
    )


def _shard(training: GridTraining, numbers: int) -> int:
    """Two gathers and a reduction, for each micro-batch; a stage that is computed again gathers for that, too."""
    gather, reduce = (_in_ring(training, each, numbers, "shard") for each in (ALL_GATHER, REDUCE_SCATTER))
    return (3 if training.options.recompute == "stage" else 2) * gather + reduce


def _gradients(training: GridTraining, numbers: int, is_expert: bool) -> int:
    """A sum of this rank's part over all that have the same parameters."""
    own = ShardedOptimizer.part_of(numbers, training.axes.place["shard"], training.grid.shard)
    return _in_ring(training, RING, own.stop - own.start, *(COPIES_OF_EXPERTS if is_expert else COPIES))
