"""Checkpoints of divided training: what each rank holds, as pieces of the unsplit model (`distributed_checkpoint`).

A rank has a run of each unit's vector, and the same run of what the optimizer remembers. Of groups that hold copies the
first one saves. What is not trained, frozen parameters and buffers, is on every rank, and rank 0 saves it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from farandole.distributed_checkpoint import storage
from farandole.distributed_checkpoint.optimizer_state import counters, of_optimizer, set_counters
from farandole.distributed_checkpoint.pieces import Local, Piece, of_tensor, of_vector, whole_box
from farandole.distributed_checkpoint.reader import Checkpoint
from farandole.sharded.training import ShardedSGD


def pieces(strategy: ShardedSGD) -> Iterator[Piece]:
    """Return what this rank holds. After loading, call `ShardedSGD.loaded`."""
    rank, model = strategy.world.rank, strategy.model
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    for unit in strategy.units:
        is_saved = strategy.axes.place["data"] == 0
        tensors = [
            Local(names[id(each)], tuple(shape), whole_box(shape), is_saved)
            for each, shape in zip(unit.parameters, unit.shapes, strict=True)
        ]
        yield from of_vector(tensors, unit.shard, unit.own)
        yield from of_optimizer(tensors, unit.optimizer, unit.own)
    for name, frozen in model.named_parameters():
        if not frozen.requires_grad:
            yield of_tensor(Local.undivided(name, frozen, rank == 0), frozen)
    for name, buffer in model.named_buffers():
        yield of_tensor(Local.undivided(name, buffer, rank == 0), buffer)


def load(strategy: ShardedSGD, folder: Path) -> None:
    """Begin with the parameters and the optimizer state of a checkpoint. Collective.

    Raises:
        UsageError: there is none in the folder, or one of another model or optimizer.
    """
    checkpoint = Checkpoint(folder)
    checkpoint.load(list(pieces(strategy)))
    for unit in strategy.units:
        set_counters(unit.optimizer, checkpoint.values["optimizer"])
    strategy.loaded()


def save(strategy: ShardedSGD, folder: Path) -> None:
    """Write what each rank holds into a folder that `storage.make` has made. Collective."""
    values = {"optimizer": counters(strategy.units[0].optimizer)}
    storage.write(folder, pieces(strategy), values, strategy.world.control)
