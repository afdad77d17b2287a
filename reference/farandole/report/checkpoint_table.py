"""Terminal table of ``farandole checkpoint``: the tensors of the unsplit model, and where their parts lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group
from rich.table import Column, Table
from rich.text import Text

from farandole.distributed_checkpoint.pieces import Part, whole_box
from farandole.distributed_checkpoint.reader import Checkpoint, by

ALONG = ("rows", "columns")


def description(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return for each tensor its shape, type, bytes and pieces; and what is no tensor."""
    return {
        "tensors": {
            name: {
                "shape": shape,
                "dtype": _kind(checkpoint, name),
                "bytes": checkpoint.nbytes(name),
                "optimizer_state": checkpoint.is_optimizer_state(name),
                "pieces": [{"file": file, "box": part.box, "run": part.run} for file, part in checkpoint.parts(name)],
            }
            for name, shape in checkpoint.shapes.items()
        },
        "values": checkpoint.values,
    }


def table(checkpoint: Checkpoint) -> Group:
    """Return a row per parameter and buffer, and one for each number per parameter that the optimizer remembers."""
    shown = Table(
        Column("tensor", overflow="fold"), "shape", "type", Column("bytes", justify="right"), "divided by", "ranks"
    )
    models = checkpoint.names()
    for name in models:
        shown.add_row(
            name,
            by(checkpoint.shapes[name]),
            _kind(checkpoint, name),
            f"{checkpoint.nbytes(name):,}",
            divided_by([part for _, part in checkpoint.parts(name)]),
            _ranks(checkpoint, [name]),
        )
    states: dict[str, list[str]] = {}
    for name in checkpoint.shapes.keys() - set(models):
        states.setdefault(name.split(".", 2)[1], []).append(name)
    for state, names in sorted(states.items()):
        kinds = " ".join(sorted({_kind(checkpoint, name) for name in names}))
        nbytes = sum(map(checkpoint.nbytes, names))
        label = f"optimizer: {state}"
        shown.add_row(label, f"{len(names)} tensors", kinds, f"{nbytes:,}", "", _ranks(checkpoint, names))
    total = sum(map(checkpoint.nbytes, models))
    elements = sum(checkpoint.nbytes(name) // checkpoint.kind(name).itemsize for name in models)
    steps = checkpoint.values.get("optimizer") or {}
    beside = "".join(f"; optimizer's {name}: {value}" for name, value in steps.items())
    line = f"{checkpoint.folder}: {len(models)} tensors of the unsplit model, {elements:,} numbers, {total:,} bytes"
    return Group(shown, Text(line + beside))


def divided_by(parts: Sequence[Part]) -> str:
    """Return how a tensor is divided into these parts: by rows, by columns, in runs of elements; "" if it is whole."""
    if all(part.is_whole for part in parts):
        return ""
    shape = parts[0].shape
    cut = [
        dimension
        for dimension, whole in enumerate(whole_box(shape))
        if any(part.box[dimension] != whole for part in parts)
    ]
    words = [ALONG[dimension] if dimension < len(ALONG) else f"dimension {dimension}" for dimension in cut]
    if any(part.run != (0, _elements(part)) for part in parts):
        words.append("elements")
    return f"{len(parts)}: {', '.join(words)}"


def _elements(part: Part) -> int:
    elements = 1
    for begin, end in part.box:
        elements *= end - begin
    return elements


def _ranks(checkpoint: Checkpoint, names: Sequence[str]) -> str:
    files = sorted({file for name in names for file, _ in checkpoint.parts(name)}, key=lambda file: (len(file), file))
    ranks = [file.removeprefix("rank-").removesuffix(".safetensors") for file in files]
    return ranks[0] if len(ranks) == 1 else f"{ranks[0]} to {ranks[-1]}"


def _kind(checkpoint: Checkpoint, name: str) -> str:
    return str(checkpoint.kind(name)).removeprefix("torch.")
