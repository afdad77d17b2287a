"""The files of a checkpoint that another layout can read, in a folder.

    rank-0.safetensors    the pieces that rank 0 saves; one that is a whole tensor has the tensor's name and shape
    rank-1.safetensors
    manifest.json         of each tensor of the unsplit model its shape and type, and where which parts of it are

The manifest is written when all files are there, so a folder with a manifest is a whole checkpoint. Any reader of
safetensors can open the files: they hold numbers and no code. Cost of loading: each rank reads every tensor of which it
needs a part, and holds one whole tensor at a time.

Related: torch's distributed checkpoint (`torch.distributed.checkpoint`), which does the same for its own layouts.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from math import prod
from pathlib import Path
from typing import Any

import torch
from mpi4py import MPI
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from farandole.distributed_checkpoint.pieces import Part, Piece
from farandole.errors import UsageError
from farandole.runtime import files
from farandole.runtime.communicator import all_gather_text

MANIFEST = "manifest.json"
FORMAT = 1
OTHERS = "give the folder of a whole checkpoint"


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


class Checkpoint:
    """A checkpoint in a folder, whatever layout has saved it.

    Attributes:
        shapes: tensor → its shape in the unsplit model.
        values: what is no tensor.

    Raises:
        UsageError: there is none, it is damaged, or of another format.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        manifest = files.read_object(folder / MANIFEST, OTHERS)
        if manifest.get("format") != FORMAT:
            raise UsageError(f"{folder} has format {manifest.get('format')}; this version reads {FORMAT}: {OTHERS}")
        try:
            self._tensors: dict[str, Any] = dict(manifest["tensors"])
            self.values: dict[str, Any] = dict(manifest["values"])
            self.shapes = {name: tuple(each["shape"]) for name, each in self._tensors.items()}
            lengths = {name: [end - begin for begin, end in _runs(each)] for name, each in self._tensors.items()}
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(f"{folder / MANIFEST} is damaged: {OTHERS}") from error
        for name, shape in self.shapes.items():
            if sum(lengths[name]) != prod(shape):
                raise UsageError(f"{folder} has {sum(lengths[name])} of {prod(shape)} elements of {name}: {OTHERS}")

    def whole(self, name: str) -> Tensor:
        """Return one tensor of the unsplit model."""
        with ExitStack() as opened:
            return self._whole(name, _Files(self.folder, opened))

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the name of each tensor of the unsplit model, and it."""
        with ExitStack() as opened:
            reader = _Files(self.folder, opened)
            for name in self._tensors:
                yield name, self._whole(name, reader)

    def load(self, pieces: Sequence[Piece]) -> None:
        """Fill this rank's pieces.

        Raises:
            UsageError: the checkpoint lacks one of their tensors, or has it in another shape; nothing has changed then.
        """
        for part in (piece.part for piece in pieces):
            if part.name not in self.shapes:
                raise UsageError(f"{self.folder} has no {part.name}: give a checkpoint of the same model and optimizer")
            if self.shapes[part.name] != part.shape:
                raise UsageError(
                    f"{self.folder} has {part.name} of shape {_by(self.shapes[part.name])}, the model one of shape "
                    f"{_by(part.shape)}: give a checkpoint of the same model"
                )
        needed = defaultdict(list)
        for piece in pieces:
            needed[piece.part.name].append(piece)
        with ExitStack() as opened, torch.no_grad():
            reader = _Files(self.folder, opened)
            for name, its in needed.items():
                whole = self._whole(name, reader)
                for piece in its:
                    piece.values.copy_(piece.part.of(whole))

    def _whole(self, name: str, reader: _Files) -> Tensor:
        described = self._tensors[name]
        whole = torch.empty(described["shape"], dtype=getattr(torch, described["dtype"]))
        for each in described["pieces"]:
            part = Part(name, tuple(described["shape"]), tuple(map(tuple, each["box"])), tuple(each["run"]))
            part.put(reader.tensor(each["file"], each["key"]).flatten(), whole)
        return whole


class _Files:
    """The opened files of a checkpoint."""

    def __init__(self, folder: Path, opened: ExitStack) -> None:
        self.folder, self._opened = folder, opened
        self._files: dict[str, Any] = {}

    def tensor(self, file: str, key: str) -> Tensor:
        try:
            if file not in self._files:
                self._files[file] = self._opened.enter_context(safe_open(self.folder / file, "pt"))
            found: Tensor = self._files[file].get_tensor(key)
        except (OSError, SafetensorError) as error:
            raise UsageError(f"{self.folder / file} is missing or damaged ({error}): {OTHERS}") from error
        return found


def _runs(described: Any) -> Iterator[tuple[int, int]]:
    return ((begin, end) for begin, end in (each["run"] for each in described["pieces"]))


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


def _by(shape: Sequence[int]) -> str:
    return " × ".join(map(str, shape)) or "one number"
