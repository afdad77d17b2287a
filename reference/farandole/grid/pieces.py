"""Which part of the unsplit model a rank of the grid holds (`distributed_checkpoint`), and the whole put together.

A stage has some of the layers, an expert rank some of the experts, a tensor rank a box of each divided matrix, and a
shard rank a run of each unit's elements. Of ranks that hold the same, the first one saves.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path

import torch
from mpi4py import MPI
from torch import nn

from farandole.data.shares import slices
from farandole.distributed_checkpoint import storage
from farandole.distributed_checkpoint.optimizer_state import counters, of_optimizer, set_counters
from farandole.distributed_checkpoint.pieces import Local, Part, Piece, of_vector, whole_box
from farandole.distributed_checkpoint.reader import Checkpoint
from farandole.grid.training import GridTraining
from farandole.grid.units import COPIES, COPIES_OF_EXPERTS
from farandole.model_parallel.expert.exchange import ExpertGroup
from farandole.model_parallel.expert.model import mixtures
from farandole.model_parallel.tensor.division import divisions
from farandole.runtime.communicator import Communicator, gather_text
from farandole.runtime.devices import empty_on_host, on_host


def parameters(training: GridTraining) -> Iterator[Piece]:
    """Return the parameters that this rank holds."""
    tensors = _locals(training)
    for unit in training.units:
        yield from of_vector([tensors[id(each)] for each in unit.parameters], unit.shard, unit.own)


def pieces(training: GridTraining) -> Iterator[Piece]:
    """Return what this rank holds: parameters and optimizer state."""
    yield from parameters(training)
    tensors = _locals(training)
    for unit in training.units:
        yield from of_optimizer([tensors[id(each)] for each in unit.parameters], unit.optimizer, unit.own)


def load(training: GridTraining, folder: Path) -> None:
    """Begin with the parameters and the optimizer state of a checkpoint. Collective.

    Raises:
        UsageError: there is none in the folder, or one of another model or optimizer.
    """
    checkpoint = Checkpoint(folder)
    checkpoint.load(list(pieces(training)))
    for unit in training.units:
        set_counters(unit.optimizer, checkpoint.values["optimizer"])


def save(training: GridTraining, folder: Path) -> None:
    """Write what each rank holds into a folder that `storage.make` has made. Collective."""
    values = {"optimizer": counters(next(iter(training.units)).optimizer)}
    storage.write(folder, pieces(training), values, training.world.control)


def gather(training: GridTraining) -> nn.Sequential | None:
    """Return the whole model, with all experts, on rank 0; None elsewhere. Collective.

    Cost: every parameter is sent to rank 0 once.
    """
    world, dtype = training.world, training.dtype
    own = [piece for piece in parameters(training) if piece.is_saved]
    texts = gather_text(world.control, json.dumps([astuple(piece.part) for piece in own]))
    vector = on_host(torch.cat([torch.empty(0, dtype=dtype), *(piece.values.detach().cpu() for piece in own)]))
    if world.rank:
        world.comm.send(vector.numpy(), 0)
        return None
    alone = ExpertGroup(Communicator(MPI.COMM_SELF), training.options.experts) if training.experts else None
    whole = training.unsplit(alone).to(world.device)
    tensors = dict(whole.named_parameters())
    for rank, text in enumerate(texts):
        parts = [_part(*each) for each in json.loads(text)]
        lengths = [part.run[1] - part.run[0] for part in parts]
        if rank:
            vector = empty_on_host([sum(lengths)], dtype, torch.device("cpu"))
            world.comm.receive(vector.numpy(), rank)
        for part, values in zip(parts, vector.split(lengths), strict=True):
            part.put(values.to(world.device), tensors[part.name].data)
    return whole


def _part(name: str, shape: list[int], box: list[list[int]], run: list[int]) -> Part:
    return Part(name, tuple(shape), tuple((begin, end) for begin, end in box), (run[0], run[1]))


def _locals(training: GridTraining) -> dict[int, Local]:
    """Return where this rank's tensors lie in those of the unsplit model, by the tensor's id."""
    found, divided, place = {}, divisions(training.module), training.axes.place
    experts = {id(each) for mixture in mixtures(training.module) for each in mixture.experts.parameters()}
    pairs = (pair for unit in training.units for pair in zip(unit.parameters, unit.shapes, strict=True))
    shapes = {id(each): shape for each, shape in pairs}  # a parameter has none of its own while it is freed
    for name, tensor in training.module.named_parameters():
        shape = list(shapes[id(tensor)])
        box = list(whole_box(shape))
        if division := divided.get(name):
            part = slices(division.shares)[training.groups.tensor.rank]
            shape[division.dimension], box[division.dimension] = sum(division.shares), (part.start, part.stop)
        copies = COPIES_OF_EXPERTS if id(tensor) in experts else COPIES
        is_first = not any(place[axis] for axis in (copies if division else (*copies, "tensor")))
        found[id(tensor)] = Local(_global_name(name, training), tuple(shape), tuple(box), is_first)
    return found


def _global_name(name: str, training: GridTraining) -> str:
    """Return the name in the unsplit model: there layers and experts are numbered among all."""
    piece, layer, rest = name.split(".", 2)
    virtual = list(training.stage.pieces)[int(piece)]
    head, experts, number = rest.partition(".experts.")
    if training.experts and experts:
        local, after = number.split(".", 1)
        rest = f"{head}{experts}{training.experts.own[int(local)]}.{after}"
    return f"{training.parts[virtual].start + int(layer)}.{rest}"
