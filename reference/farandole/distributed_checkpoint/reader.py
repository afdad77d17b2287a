"""A checkpoint that any layout has saved (`storage`), as the tensors of the unsplit model; MPI is not needed.

Cost: one whole tensor in memory at a time, put together from its pieces (`export`: all). A rank that loads reads every
tensor of which it needs a part.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from math import prod
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from farandole.distributed_checkpoint.pieces import Part, Piece
from farandole.errors import UsageError
from farandole.runtime import files

MANIFEST = "manifest.json"
FORMAT = 1
SUFFIX = ".safetensors"
OTHERS = "give the folder of a whole checkpoint"


class Checkpoint:
    """A checkpoint in a folder, whatever layout has saved it.

        model.load_state_dict(Checkpoint("trained").state_dict())

    Args:
        folder: that a training has written with ``--save``.

    Attributes:
        shapes: tensor → its shape in the unsplit model, of parameters, buffers and optimizer state.
        values: what is no tensor, such as the number of steps that the optimizer has taken.

    Raises:
        UsageError: there is none, it is incomplete or damaged, or of another format.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        manifest = files.read_object(self.folder / MANIFEST, OTHERS)
        if manifest.get("format") != FORMAT:
            raise UsageError(f"{folder} has format {manifest.get('format')}; this version reads {FORMAT}: {OTHERS}")
        try:
            self._kinds = {name: _kind(each["dtype"]) for name, each in manifest["tensors"].items()}
            self._pieces = {name: list(_described(name, each)) for name, each in manifest["tensors"].items()}
            self.shapes = {name: tuple(each["shape"]) for name, each in manifest["tensors"].items()}
            self.values: dict[str, Any] = dict(manifest["values"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UsageError(f"{self.folder / MANIFEST} is damaged: {OTHERS}") from error
        for name, shape in self.shapes.items():
            found = sum(end - begin for begin, end in (part.run for part, _, _ in self._pieces[name]))
            if found != prod(shape):
                raise UsageError(f"{folder} has {found} of {prod(shape)} elements of {name}: {OTHERS}")

    def whole(self, name: str) -> Tensor:
        """Return one tensor of the unsplit model."""
        with ExitStack() as opened:
            return self._whole(name, _Files(self.folder, opened))

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the name of each tensor of the unsplit model, and the tensor; optimizer state, too."""
        with ExitStack() as opened:
            reader = _Files(self.folder, opened)
            for name in self.shapes:
                yield name, self._whole(name, reader)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the full state dict: parameters and buffers of the unsplit model, on the host.

        A parameter that several modules share is there once, under its first name.

        Raises:
            UsageError: a file is missing or damaged.
        """
        with ExitStack() as opened:
            reader = _Files(self.folder, opened)
            return {name: self._whole(name, reader) for name in self.names()}

    def names(self, optimizer_state: bool = False) -> list[str]:
        """Return the names of parameters and buffers, and on request those of the optimizer state."""
        return [name for name in self.shapes if optimizer_state or not self.is_optimizer_state(name)]

    def is_optimizer_state(self, name: str) -> bool:
        """Return whether the tensor is what an optimizer remembers: optimizer.STATE.PARAMETER."""
        room, _, rest = name.partition(".")
        return room == "optimizer" and rest.partition(".")[2] in self.shapes

    def nbytes(self, name: str) -> int:
        """Return the bytes of a whole tensor."""
        elements: int = prod(self.shapes[name])
        return elements * self._kinds[name].itemsize

    def kind(self, name: str) -> torch.dtype:
        """Return the type of a tensor's elements."""
        return self._kinds[name]

    def parts(self, name: str) -> list[tuple[str, Part]]:
        """Return the pieces of a tensor, each with the name of the file that holds it."""
        return [(file, part) for part, file, _ in self._pieces[name]]

    def check(self) -> None:
        """Look whether every piece is in its file, in its size; nothing but the files' headers is read.

        Raises:
            UsageError: a file is missing or damaged.
        """
        with ExitStack() as opened:
            reader = _Files(self.folder, opened)
            for part, file, key in (each for pieces in self._pieces.values() for each in pieces):
                reader.check(file, key, part)

    def export(self, file: str | Path, optimizer_state: bool = False) -> None:
        """Write whole tensors into one file of safetensors.

        Args:
            file: a new one, whose name ends in .safetensors.
            optimizer_state: with the optimizer state, under names optimizer.STATE.PARAMETER.

        Raises:
            UsageError: a file of the checkpoint is missing or damaged; or the new one is there already, or cannot be
                written.

        Cost: all of them in memory.
        """
        file = Path(file)
        if file.suffix != SUFFIX:
            raise UsageError(f"{file} is written as safetensors: give a name that ends in {SUFFIX}")
        if file.exists():
            raise UsageError(f"{file} is there already: give a new name")
        names = set(self.names(optimizer_state))
        content = save({name: tensor for name, tensor in self.tensors() if name in names}, {"format": "pt"})
        try:
            files.write(file, content)
        except OSError as error:
            raise UsageError(f"{error.filename} cannot be written ({error.strerror}): give another file") from error

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
                    f"{self.folder} has {part.name} of shape {by(self.shapes[part.name])}, the model one of shape "
                    f"{by(part.shape)}: give a checkpoint of the same model"
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
        whole = torch.empty(self.shapes[name], dtype=self._kinds[name])
        for part, file, key in self._pieces[name]:
            part.put(reader.tensor(file, key, part).flatten(), whole)
        return whole


class _Files:
    """The opened files of a checkpoint."""

    def __init__(self, folder: Path, opened: ExitStack) -> None:
        self.folder, self._opened = folder, opened
        self._files: dict[str, Any] = {}

    def check(self, file: str, key: str, part: Part) -> None:
        with self._reading(file):
            shape = self._file(file).get_slice(key).get_shape()
        self._check_size(file, prod(shape), part)

    def tensor(self, file: str, key: str, part: Part) -> Tensor:
        with self._reading(file):
            found: Tensor = self._file(file).get_tensor(key)
        self._check_size(file, found.numel(), part)
        return found

    def _file(self, file: str) -> Any:
        if file not in self._files:
            self._files[file] = self._opened.enter_context(safe_open(self.folder / file, "pt"))
        return self._files[file]

    @contextmanager
    def _reading(self, file: str) -> Iterator[None]:
        try:
            yield
        except (OSError, SafetensorError) as error:
            raise UsageError(f"{self.folder / file} is missing or damaged ({error}): {OTHERS}") from error

    def _check_size(self, file: str, found: int, part: Part) -> None:
        expected = part.run[1] - part.run[0]
        if found != expected:
            raise UsageError(
                f"{self.folder / file} is damaged ({found} elements of {part.name} in place of {expected}): {OTHERS}"
            )


def by(shape: Sequence[int]) -> str:
    """Return a shape as text, such as 16 × 64."""
    return " × ".join(map(str, shape)) or "one number"


def _kind(name: str) -> torch.dtype:
    kind = getattr(torch, name)
    if not isinstance(kind, torch.dtype):
        raise TypeError(f"{name} is no type of tensors")
    return kind


def _described(name: str, tensor: Any) -> Iterator[tuple[Part, str, str]]:
    """Yield each piece of a tensor of the manifest, with the file that holds it, and its key there."""
    shape = tuple(map(int, tensor["shape"]))
    for each in tensor["pieces"]:
        box, run = (
            tuple((int(begin), int(end)) for begin, end in each["box"]),
            (int(each["run"][0]), int(each["run"][1])),
        )
        lengths = [end - begin for begin, end in box]
        inside = all(0 <= begin <= end <= length for (begin, end), length in zip(box, shape, strict=True))
        if not inside or not 0 <= run[0] <= run[1] <= prod(lengths):
            raise ValueError(f"a piece of {name} lies outside of it")
        yield Part(name, shape, box, run), str(each["file"]), str(each["key"])
