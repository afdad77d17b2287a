"""One file of safetensors with whole tensors, written one after the other.

    8 bytes    length of the header, little-endian
    header     JSON: {name: {"dtype": "F32", "shape": [4, 6], "data_offsets": [0, 96]}, …}
    data       each tensor's elements, row by row, where its offsets say

Tensors of wider types come first, so that each begins at a multiple of its elements' size. The function `save_file` of
`safetensors.torch` writes the same, but of tensors that are all in memory.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from farandole.errors import UsageError
from farandole.runtime import files

SUFFIX = ".safetensors"
KINDS = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip


def write(
    file: Path, tensors: Mapping[str, tuple[torch.dtype, tuple[int, ...]]], whole: Callable[[str], Tensor]
) -> None:
    """Write a new file.

    Args:
        tensors: name → type and shape.
        whole: name → the tensor, which is asked for when it is written.

    Raises:
        UsageError: the name has another suffix, the file is there already or cannot be written, or the format does not
            know a type.
    """
    if file.suffix != SUFFIX:
        raise UsageError(f"{file} is written as safetensors: give a name that ends in {SUFFIX}")
    if file.exists():
        raise UsageError(f"{file} is there already: give a new name")
    if unknown := {str(kind) for kind, _ in tensors.values() if kind not in KINDS}:
        raise UsageError(f"safetensors have no {min(unknown)}")
    try:
        files.write_parts(file, _parts(tensors, whole))
    except OSError as error:
        raise UsageError(f"{error.filename} cannot be written ({error.strerror}): give another file") from error


def _parts(
    tensors: Mapping[str, tuple[torch.dtype, tuple[int, ...]]], whole: Callable[[str], Tensor]
) -> Iterator[bytes]:
    names = sorted(tensors, key=lambda name: -tensors[name][0].itemsize)
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name in names:
        kind, shape = tensors[name]
        end = offset + prod(shape) * kind.itemsize
        header[name] = {"dtype": KINDS[kind], "shape": shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    yield struct.pack("<Q", len(text)) + text
    for name in names:
        yield whole(name).contiguous().view(-1).view(torch.uint8).numpy().tobytes()
