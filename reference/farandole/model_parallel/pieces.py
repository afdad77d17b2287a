"""The parameters that each rank of the grid holds, as pieces of the unsplit model (`distributed_checkpoint`).

A stage has some of the layers; a tensor rank a box of each divided parameter; and where the optimizer's state is
divided over the data axis (ZeRO-1), a rank has a run of that. Of ranks that hold the same, the first one saves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate

import torch
from torch import Tensor, nn

from farandole.data.shares import slices
from farandole.distributed_checkpoint.optimizer_state import of_optimizer
from farandole.distributed_checkpoint.pieces import Local, Piece, of_tensor, of_vector, whole_box
from farandole.model_parallel.parts import Parts
from farandole.model_parallel.tensor.division import divisions


def pieces(parts: Parts) -> Iterator[Piece]:
    """Return what this rank holds: parameters, buffers and optimizer state."""
    tensors = _locals(parts)
    parameters = dict(parts.module.named_parameters())
    flat = [tensors[name] for name, each in parameters.items() if each.requires_grad]
    everything = slice(0, len(parts.flat.values))
    alike = [_of_first_pipeline(each, parts) for each in flat]
    yield from of_vector(alike, parts.flat.values, everything)
    own = parts.optimizer.part(everything.stop)
    yield from of_optimizer(alike if own == everything else flat, parts.optimizer.optimizer, own)
    for name, each in _not_trained(parts.module):
        yield of_tensor(_of_first_pipeline(tensors[name], parts), each)


def _locals(parts: Parts) -> dict[str, Local]:
    """Return the tensors on this rank, by the names they have in `parts.module`."""
    found, divided, before = {}, divisions(parts.module), _layers_before(parts)
    stages_with, virtual = parts.schedule.placement.stages_with, list(parts.pieces)
    for name, tensor in (*parts.module.named_parameters(), *parts.module.named_buffers()):
        shape, box = list(tensor.shape), list(whole_box(tensor.shape))
        if division := divided.get(name):
            part = slices(division.shares)[parts.tensor.rank]
            shape[division.dimension], box[division.dimension] = sum(division.shares), (part.start, part.stop)
        piece = virtual[int(name.partition(".")[0])]
        is_first = parts.place["pipeline"] == min(stages_with(piece, parts.layout.pipeline))
        is_first &= parts.tensor.rank == 0 or bool(division)
        found[name] = Local(_global_name(name, parts, before), tuple(shape), tuple(box), is_first)
    return found


def _of_first_pipeline(tensor: Local, parts: Parts) -> Local:
    """Return the same, which only the first of the pipelines that hold it saves."""
    return replace(tensor, is_saved=tensor.is_saved and parts.place["data"] == 0)


def _global_name(name: str, parts: Parts, before: list[int]) -> str:
    """Return the name in the unsplit model: there a layer is called by its number.

    Here it is called by the number of its piece, of its unit in the piece and, where a unit has several layers, of the
    layer in the unit.
    """
    piece, unit, rest = name.split(".", 2)
    virtual = list(parts.pieces)[int(piece)]
    layer = before[parts.plan.bounds[virtual] + int(unit)]
    if parts.layout.tensor > 1 and isinstance(parts.pieces[virtual][int(unit)], nn.Sequential):
        within, rest = rest.split(".", 1)
        layer += int(within)
    return f"{layer}.{rest}"


def _layers_before(parts: Parts) -> list[int]:
    """Return how many layers of the model stand before each of its units, which are layers where no tensor is split."""
    if parts.layout.tensor == 1:
        return list(range(parts.plan.bounds[-1]))
    with torch.device("meta"):
        lengths = [len(unit) if isinstance(unit, nn.Sequential) else 1 for unit in parts.layers()]
    return [0, *accumulate(lengths)]


def _not_trained(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from ((name, each.data) for name, each in module.named_parameters() if not each.requires_grad)
    yield from module.named_buffers()
