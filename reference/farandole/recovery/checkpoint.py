"""Checkpoints on disk: two slots, written in turn, and always verified before they are used.

A slot holds one file of tensors and one JSON file per writer: one writer, rank 0, or every rank with
its part of what is shared. Each file is replaced as a whole, and one that was torn, altered or
exchanged is detected (`checkpoint_part`).

A checkpoint is complete when all its writers' files are there, of the same step, and unharmed. While
one slot is written the other stays as it is. So whenever a process dies, one complete checkpoint is
left, provided no rank begins with a slot before the other is complete on all ranks (`checkpointer`).

    slot-0/rank-2.safetensors   the tensors, or this writer's parts of them
           rank-2.json          step, ranks, writers, shapes, values, checksums

Another number of ranks can read a checkpoint than wrote it: the parts are joined, and cut anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from farandole.collectives.steps import chunk_slice
from farandole.errors import UsageError
from farandole.recovery.checkpoint_part import FORMAT, Damaged, OtherFormat, read_part, sync_names, write_part
from farandole.recovery.snapshot import Snapshot
from farandole.recovery.state import TrainingState

CHECKPOINTS = "checkpoints"  # the folder of a run's checkpoints, beside its record
SLOTS = 2


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint.

    Attributes:
        slot: the slot that holds it.
        ranks: number of ranks that trained.
        shared, values: as in `TrainingState`.
        own: rank → its own tensors.
    """

    slot: int
    step: int
    ranks: int
    shared: dict[str, Tensor]
    own: dict[int, dict[str, Tensor]]
    values: dict[str, Any]

    def of_rank(self, rank: int) -> TrainingState:
        """Return the state from which that rank continues; without `own` where there was no such rank."""
        return TrainingState(self.step, self.shared, self.own.get(rank, {}), self.values)


def piece(tensors: Mapping[str, Tensor], number: int, pieces: int) -> dict[str, Tensor]:
    """Return part `number` of `pieces` of each tensor, flat, and still in the original's memory."""
    flat = {name: tensor.detach().flatten() for name, tensor in tensors.items()}
    return {name: tensor[chunk_slice(len(tensor), pieces, number)] for name, tensor in flat.items()}


def joined(pieces: Sequence[Mapping[str, Tensor]], shapes: Mapping[str, list[int]]) -> dict[str, Tensor]:
    """Return the tensors from which these `piece`s were cut, in order."""
    return {name: torch.cat([each[name] for each in pieces]).view(shape) for name, shape in shapes.items()}


def part(state: TrainingState, own: Mapping[int, Mapping[str, Tensor]], writer: int, writers: int) -> dict[str, Tensor]:
    """Return what one writer keeps: its part of each shared tensor, and the own tensors of the ranks it writes for.

    Args:
        own: rank → its own tensors.
    """
    kept = {f"shared/{name}": tensor for name, tensor in piece(state.shared, writer, writers).items()}
    for rank, tensors in own.items():
        kept |= {f"own/{rank}/{name}": tensor.detach() for name, tensor in tensors.items()}
    return kept


def describe(state: TrainingState, ranks: int, writer: int, writers: int) -> dict[str, Any]:
    """Return the fields of a writer's JSON file, without the checksums."""
    return {
        "format": FORMAT,
        "step": state.step,
        "ranks": ranks,
        "writer": writer,
        "writers": writers,
        "shapes": {name: list(tensor.shape) for name, tensor in state.shared.items()},
        "values": state.values,
    }


def write(folder: Path, slot: int, snapshot: Snapshot, description: Mapping[str, Any]) -> None:
    """Write one writer's part to the disk. What the slot held before is lost from the first rename on.

    Raises:
        OSError: no space, no permission.
    """
    slot_folder = folder / f"slot-{slot}"
    if not slot_folder.is_dir():
        slot_folder.mkdir(parents=True, exist_ok=True)
        for holder in (folder, folder.parent):
            sync_names(holder)
    write_part(slot_folder, snapshot.data, description)


def read(folder: Path, slot: int) -> Checkpoint:
    """Return the checkpoint in a slot.

    Raises:
        FileNotFoundError: nothing has been written there.
        Damaged: it is not complete, or not what was written.
    """
    slot_folder = folder / f"slot-{slot}"
    if not any(slot_folder.glob("rank-*")):
        raise FileNotFoundError(slot_folder)
    first, tensors = read_part(slot_folder, 0)
    parts = [tensors]
    for writer in range(1, first["writers"]):
        its, tensors = read_part(slot_folder, writer)
        for field in ("step", "writers", "ranks", "shapes", "values"):
            if its[field] != first[field]:
                raise Damaged(f"rank-{writer} is of {field} {its[field]}, rank-0 of {first[field]}")
        parts.append(tensors)
    try:
        whole = joined(parts, {f"shared/{name}": shape for name, shape in first["shapes"].items()})
    except (KeyError, RuntimeError, TypeError) as error:  # the checksums are right, but the tensors do not match
        why = " ".join(str(error).splitlines()[:1])
        raise Damaged(f"the parts do not make up what rank-0.json describes ({why})") from error
    shared = {name.removeprefix("shared/"): tensor for name, tensor in whole.items()}
    own: dict[int, dict[str, Tensor]] = {}
    for tensors in parts:
        for name in tensors:
            kind, _, rest = name.partition("/")
            if kind == "own":
                rank, _, what = rest.partition("/")
                if not rank.isdecimal():
                    raise Damaged(f"{name} is of no rank")
                own.setdefault(int(rank), {})[what] = tensors[name]
    return Checkpoint(slot, first["step"], first["ranks"], shared, own, first["values"])


def newest(folder: Path) -> tuple[Checkpoint | None, list[str]]:
    """Return the complete checkpoint with the most steps, and a line on each slot that was skipped.

    Cost: reads every byte of both slots.

    Raises:
        UsageError: nothing can be read but what another version has written, which a new start would overwrite.
    """
    found: list[Checkpoint] = []
    troubles, other = [], ""
    for slot in range(SLOTS):
        try:
            found.append(read(folder, slot))
            # Its writers may have been killed before the names had reached the disk. Until then the
            # other slot must not be overwritten.
            sync_names(folder / f"slot-{slot}")
        except FileNotFoundError:
            continue
        except Damaged as damage:
            other = f"{folder / f'slot-{slot}'}: {damage}" if isinstance(damage, OtherFormat) else other
            troubles.append(f"the checkpoint in {folder / f'slot-{slot}'} is damaged and passed over: {damage}")
    if other and not found:
        raise UsageError(f"{other}: continue with the version that wrote it, or give another --out")
    return max(found, key=lambda checkpoint: checkpoint.step, default=None), troubles
