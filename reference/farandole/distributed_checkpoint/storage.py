"""The files of a checkpoint that another layout can read, in a folder, and how they are written.

    rank-0.safetensors    the pieces that rank 0 saves; one that is a whole tensor has the tensor's name and shape
    rank-1.safetensors
    manifest.json         of each tensor of the unsplit model its shape and type, and where which parts of it are

The manifest is written when all files are there, so a folder with a manifest is a whole checkpoint. Any reader of
safetensors can open the files: they hold numbers and no code. `reader` puts the tensors together.

Related: torch's distributed checkpoint (`torch.distributed.checkpoint`), which does the same for its own layouts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mpi4py import MPI
from safetensors.torch import save

from farandole.distributed_checkpoint.pieces import Piece
from farandole.distributed_checkpoint.reader import FORMAT, MANIFEST
from farandole.errors import UsageError
from farandole.runtime import files
from farandole.runtime.communicator import all_gather_text


def make(folder: Path, control: MPI.Intracomm) -> None:
    """Make the folder of a checkpoint, before the training that is to end in it. Collective.

    Raises:
        UsageError: the folder holds something, or cannot be made.
    """
    _all_or_none(control, lambda: _make(folder) if control.rank == 0 else None)


def write(folder: Path, pieces: Iterable[Piece], values: dict[str, Any], control: MPI.Intracomm) -> None:
    """Write a checkpoint. Collective.

    Args:
        folder: which `make` has made.
        pieces: of this rank.
        values: what is no tensor, such as the optimizer's number of steps; rank 0's are kept.
        control: all ranks that save.

    Raises:
        UsageError: the folder cannot be written.
    """
    file = f"rank-{control.rank}.safetensors"
    described, tensors = [], {}
    for piece in pieces:
        if piece.is_saved:
            part = piece.part
            key = part.name if part.is_whole else f"{part.name}[{part.box}][{part.run}]"
            own = piece.values.detach().cpu()
            tensors[key] = own.view(part.shape) if part.is_whole else own
            kind = str(own.dtype).removeprefix("torch.")
            place = {"file": file, "key": key, "box": part.box, "run": part.run}
            described.append([part.name, list(part.shape), kind, place])
    _all_or_none(control, lambda: files.write(folder / file, save(tensors)) if tensors else None)
    everything = [json.loads(text) for text in all_gather_text(control, json.dumps(described))]
    if control.rank == 0:
        manifest = {"format": FORMAT, "values": values, "tensors": _manifest(everything)}
    _all_or_none(
        control,
        lambda: files.write(folder / MANIFEST, json.dumps(manifest, indent=1)) if control.rank == 0 else None,
    )


def _manifest(everything: list[list[Any]]) -> dict[str, Any]:
    tensors: dict[str, Any] = {}
    for name, shape, kind, place in (each for of_rank in everything for each in of_rank):
        described = tensors.setdefault(name, {"shape": shape, "dtype": kind, "pieces": []})
        described["pieces"].append(place)
    return tensors


def _make(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"--save {folder} is not empty: give a new folder")
    folder.mkdir(parents=True, exist_ok=True)


def _all_or_none(control: MPI.Intracomm, act: Any) -> None:
    """Act on every rank; what one of them cannot do, all refuse."""
    trouble = ""
    try:
        act()
    except UsageError as error:
        trouble = str(error)
    except OSError as error:
        trouble = f"{error.filename} cannot be written ({error.strerror}): give another folder"
    if found := next(filter(None, all_gather_text(control, trouble)), ""):
        raise UsageError(found)
