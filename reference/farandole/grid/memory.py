"""The memory of a rank of the grid, by formula: its layers, divided by tensor, expert and shard ranks.

The parameters of each layer's units are those of `unit_sizes`. Where S ranks shard them each keeps 1/S, and one unit
whole at a time (`sharded.stages`). Activations are those of the unsplit layers for this rank's samples and positions
(`model_parallel.footprint`), as often as the schedule holds them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass

import torch

from farandole import tasks
from farandole.data.shares import equal_shares
from farandole.grid import unit_sizes
from farandole.grid.training import GridTraining
from farandole.grid.unit_sizes import UnitSize
from farandole.model_parallel.context.placement import length
from farandole.model_parallel.footprint import footprint
from farandole.model_parallel.memory import Memory
from farandole.model_parallel.step_costs import most_held
from farandole.model_parallel.zero import ShardedOptimizer
from farandole.models.transformer import EXPANSION, HEAD_WIDTH
from farandole.sharded import stages
from farandole.sharded.memory import remembered


@dataclass(frozen=True)
class Sizes:
    """The layers of a rank.

    Attributes:
        embeddings, blocks, heads: the numbers of these layers.
        heads_width: numbers of a position's vector that belong to this rank's heads of attention.
        units: of all of them.
    """

    embeddings: int
    blocks: int
    heads: int
    heads_width: int
    units: list[UnitSize]


def sizes(training: GridTraining) -> Sizes:
    """Return the layers of this rank, from the options and its place alone."""
    width, tensor = training.options.hidden, training.groups.tensor
    own = [number for virtual in training.virtual_stages for number in range(*training.parts[virtual].indices(2**31))]
    last = training.options.depth + 1
    blocks = sum(0 < number < last for number in own)
    heads = equal_shares(width // HEAD_WIDTH, tensor.size)[tensor.rank] * HEAD_WIDTH
    units = [unit for number in own for unit in _units(training, number, heads)]
    return Sizes(int(0 in own), blocks, int(last in own), heads, units)


def memory(training: GridTraining) -> dict[str, dict[str, int | None]]:
    """Return what this rank has held, in bytes: "measured", and by "formula"."""
    units, optimizer, itemsize = training.units, training.options.optimizer, training.dtype.itemsize
    shard = training.axes.axis("shard")
    held = [unit.numel for unit in sizes(training).units]
    parts = [ShardedOptimizer.part_of(numel, shard.rank, shard.size) for numel in held]
    kept = sum(part.stop - part.start for part in parts) * itemsize
    state = sum(remembered(optimizer, part, ()) for part in parts) * itemsize
    known = stages.Sizes([numel * itemsize for numel in held], kept, root=0, state=state)
    formula = stages.by_formula(units.sharding, known, on_device=True)
    most = units.memory.most
    measured = Memory(most["parameters"], most["gradients"], most["optimizer_state"], units.meter.most)
    found: dict[str, dict[str, int | None]] = {
        "measured": asdict(measured),
        "formula": asdict(Memory(**formula, activations=activations(training))),
    }
    offload = training.stage.offload
    return found | ({"offloaded": offload.account()} if offload else {})


def activations(training: GridTraining) -> int | None:
    """Return what autograd keeps at most, by formula; None with experts, where it depends on the tokens."""
    if training.experts:
        return None
    with torch.device("meta"):
        layers = list(training.unsplit(None))
    context, parts = training.groups.context, training.options.micro_batches
    rows = -(-training.shard.largest_batch // parts)
    kept, again = {}, {}
    for chunk, virtual in enumerate(training.virtual_stages):
        shape = (rows, length(context.own), *((training.options.hidden,) if virtual else ()))
        inputs = torch.empty(shape, dtype=training.dtype if virtual else torch.int64, device="meta")
        found = footprint(
            layers[training.parts[virtual]],
            inputs,
            loss=virtual == training.last,
            tensor_ranks=training.groups.tensor.size,
            tensor_rank=training.groups.tensor.rank,
            recompute=training.options.recompute,
            fused=not training.options.unfused_attention,
        )
        assert found
        elsewhere = training.options.offload_activations is not None
        kept[chunk] = found.inputs if elsewhere else found.activations
        again[chunk] = found.in_flight if elsewhere else found.again
    return most_held(training.schedule.computations(*training.stages, parts), kept, again=again)


def _units(training: GridTraining, number: int, heads: int) -> Iterator[UnitSize]:
    """Yield the units of one layer of the model."""
    width, tensor, experts = training.options.hidden, training.groups.tensor, training.experts
    middle = equal_shares(EXPANSION * width, tensor.size)[tensor.rank]
    vocabulary = equal_shares(tasks.number_of_classes(training.task), tensor.size)[tensor.rank]
    if number == 0:
        yield unit_sizes.embedding(width, vocabulary, training.context)
    elif number == training.options.depth + 1:
        yield unit_sizes.head(width, vocabulary)
    else:
        own = len(experts.own) if experts else 0
        yield from unit_sizes.block(width, heads, middle, training.options.experts, own)
