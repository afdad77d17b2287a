"""A rank's memory put together: what it has held, and what the formulas say that it should have.

Measured are the buffers themselves and what autograd has kept (`memory`). By formula, a rank's share
of the parameters gives parameters, gradients and state; shapes (`footprint`) and the schedule's
high-water mark (`step_costs.most_held`) give the activations.
"""

from __future__ import annotations

from dataclasses import asdict

import torch
from torch import Tensor, nn

from farandole.model_parallel.footprint import Footprint, footprint
from farandole.model_parallel.memory import Memory
from farandole.model_parallel.parts import Parts
from farandole.model_parallel.schedules import pipedream
from farandole.model_parallel.step_costs import most_held
from farandole.model_parallel.tensor.division import divisions
from farandole.model_parallel.tensor.sequence import shares_of
from farandole.model_parallel.tensor.units import opened
from farandole.model_parallel.versions import StashingStage
from farandole.models.training_state import STATE_PER_PARAMETER


def account(parts: Parts) -> dict[str, dict[str, int | None]]:
    """Return what this rank has held, in bytes, "measured" and by "formula", and what was "offloaded" out and in."""
    found: dict[str, dict[str, int | None]] = {
        "measured": asdict(measured(parts)),
        "formula": asdict(by_formula(parts)),
    }
    return found | ({"offloaded": parts.stage.offload.account()} if parts.stage.offload else {})


def measured(parts: Parts) -> Memory:
    versions = parts.stage.most_versions if isinstance(parts.stage, StashingStage) else 0
    return Memory(
        parameters=parts.flat.values.nbytes * (1 + versions),
        gradients=parts.flat.gradients.nbytes,
        optimizer_state=parts.optimizer.state_bytes(),
        activations=parts.stage.meter.most,
    )


def by_formula(parts: Parts) -> Memory:
    layout, schedule = parts.layout, parts.schedule
    under_way = layout.parts_of_a_batch if schedule.flushes else parts.options.steps
    with torch.device("meta"):
        layers = parts.layers()
        pieces = {virtual: nn.Sequential(*layers[parts.plan.parts[virtual]]) for virtual in parts.pieces}
        left = {}
        for chunk in range(schedule.chunks):
            virtual = schedule.placement.virtual_stage(parts.place["pipeline"], chunk, layout.pipeline)
            left[chunk] = _footprint(parts, virtual, pieces[virtual])
    size = sum(_size(parts, virtual, piece) for virtual, piece in pieces.items())
    versions = 0
    if not schedule.flushes:
        place = parts.place["pipeline"]
        versions = pipedream.most_versions(place, layout.pipeline, under_way, vertical=layout.vertical_sync)
    own = parts.optimizer.part(size // parts.flat.values.itemsize)
    state = STATE_PER_PARAMETER[parts.options.optimizer] * (own.stop - own.start) * parts.flat.values.itemsize
    return Memory(
        parameters=size * (1 + versions),
        gradients=size,
        optimizer_state=state,
        activations=_most_held(parts, under_way, left),
    )


def _most_held(parts: Parts, micro_batches: int, left: dict[int, Footprint | None]) -> int | None:
    """Return the schedule's high-water mark, given what a micro-batch leaves in each chunk."""
    known = {chunk: piece for chunk, piece in left.items() if piece}
    if len(known) < len(left):
        return None
    steps = parts.schedule.computations(parts.place["pipeline"], parts.layout.pipeline, micro_batches)
    elsewhere = parts.layout.offload is not None
    return most_held(
        steps,
        {chunk: piece.inputs if elsewhere else piece.activations for chunk, piece in known.items()},
        {chunk: piece.late for chunk, piece in known.items()},
        {chunk: piece.in_flight if elsewhere else piece.again for chunk, piece in known.items()},
    )


def _footprint(parts: Parts, virtual: int, piece: nn.Sequential) -> Footprint | None:
    loss = virtual == parts.last
    inputs = _like_inputs(parts, virtual)
    own = None
    if parts.layout.sequence and parts.tensor.size > 1:
        own = shares_of(inputs.shape[1], parts.tensor)[parts.tensor.rank]
    return footprint(
        opened(piece),
        inputs,
        loss=loss,
        tensor_ranks=parts.tensor.size,
        tensor_rank=parts.tensor.rank,
        positions=own,
        recompute=parts.layout.recompute,
        fused=not parts.layout.unfused,
    )


def _like_inputs(parts: Parts, virtual: int) -> Tensor:
    """Return a tensor like the inputs of a virtual stage for one micro-batch."""
    rows = -(-parts.shard.largest_batch // parts.layout.parts_of_a_batch)
    kind = parts.shard.kind if virtual == 0 else parts.dtype  # characters come as numbers
    return torch.empty((rows, *parts.plan.shapes[virtual]), dtype=kind)


def _size(parts: Parts, virtual: int, piece: nn.Sequential) -> int:
    """Bytes of this rank's parameters of a piece, which is given whole."""
    divided = divisions(parts.pieces[virtual])
    size = 0
    for name, parameter in piece.named_parameters():
        shares = divided[name].shares if name in divided else (1,)
        size += parameter.nbytes * shares[parts.tensor.rank % len(shares)] // sum(shares)
    return size
