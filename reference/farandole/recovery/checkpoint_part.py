"""One writer's part of a checkpoint: a file of tensors, and a JSON file that vouches for both.

Each file is written under a temporary name, flushed to the disk (fsync) and only then renamed, which is
atomic: a file is the old one or the new one, never half of each. The JSON file comes last and holds the
checksum of the tensors' file and its own. The tensors' is a CRC-32, which is as fast as memory and
notices damage, not intent; SHA-256 took longer than writing.
Source of the format: safetensors (Hugging Face), which holds numbers and no code.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Mapping
from contextlib import suppress
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file as tensors_of_file
from torch import Tensor

FORMAT = 2
# The fields of a writer's JSON file, besides its checksum, and their types.
DESCRIBED: dict[str, type] = {
    "format": int, "step": int, "ranks": int, "writer": int, "writers": int, "shapes": dict, "values": dict,
    "tensors_crc32": int,
}  # fmt: skip


class Damaged(Exception):
    """A slot with a damaged file; the message names the file and the reason."""


class OtherFormat(Damaged):
    """A slot that another version of this package has written."""


def write_part(slot_folder: Path, tensors: bytes | bytearray, description: Mapping[str, Any]) -> None:
    """Write one writer's two files to the disk.

    Args:
        tensors: the contents of a safetensors file.
        description: the fields of `DESCRIBED`, without the checksum.

    Raises:
        OSError: no space, no permission.
    """
    stem = f"rank-{description['writer']}"
    described = dict(description) | {"tensors_crc32": zlib.crc32(tensors)}
    described["sha256"] = _digest(described)
    _replace(slot_folder / f"{stem}.safetensors", tensors)
    _replace(slot_folder / f"{stem}.json", json.dumps(described, indent=1).encode())


def read_part(slot_folder: Path, writer: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the description, and the tensors, which stay in the mapped file: a later checkpoint only replaces it.

    Raises:
        Damaged: a file is missing, cannot be read, or is not what was written.
        OtherFormat: another version has written it.
    """
    stem = f"rank-{writer}"
    path = slot_folder / f"{stem}.safetensors"
    try:
        text = (slot_folder / f"{stem}.json").read_bytes()
        crc32 = _crc32(path)
    except FileNotFoundError as error:
        raise Damaged(f"{Path(error.filename).name} is missing") from error
    except OSError as error:
        raise Damaged(f"{Path(error.filename or slot_folder).name} cannot be read ({error.strerror})") from error
    try:
        described = json.loads(text)
        promised = described.pop("sha256")
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise Damaged(f"{stem}.json is torn") from error
    if promised != _digest(described):
        raise Damaged(f"{stem}.json is not what was written (its checksum differs)")
    if described.get("format", FORMAT) != FORMAT:
        raise OtherFormat(f"{stem}.json has format {described['format']}, and this version reads {FORMAT}")
    if lacking := DESCRIBED.keys() - described.keys():
        raise Damaged(f"{stem}.json does not say {min(lacking)}")
    for name, kind in DESCRIBED.items():
        if not isinstance(described[name], kind):
            raise Damaged(f"{stem}.json has a {name} of another type")
    if described["step"] < 0 or described["ranks"] < 1:
        raise Damaged(f"{stem}.json is of step {described['step']}, of {described['ranks']} ranks")
    if described["writer"] != writer:
        raise Damaged(f"{stem}.json is writer {described['writer']}'s")
    if crc32 != described["tensors_crc32"]:
        raise Damaged(f"{stem}.safetensors is not what {stem}.json promises (its checksum differs)")
    try:
        return described, tensors_of_file(path)
    except SafetensorError as error:  # right to the byte, but written by something else
        raise Damaged(f"{stem}.safetensors holds no tensors ({error})") from error


def sync_names(folder: Path) -> None:
    """Return when the names in `folder` are on the disk."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _crc32(path: Path) -> int:
    """Return the checksum of a file, without a copy of it."""
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:  # no memory can be mapped to it
            return zlib.crc32(b"")
        with mmap(file.fileno(), 0, access=ACCESS_READ) as data:
            return zlib.crc32(data)


def _digest(described: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()


def _replace(file: Path, data: bytes | bytearray) -> None:
    """Replace `file` by `data`, atomically, and return when it is on the disk."""
    unfinished = file.with_name(file.name + ".unfinished")
    try:
        with unfinished.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        unfinished.replace(file)
    except OSError:
        with suppress(OSError):
            unfinished.unlink()  # frees its space for smaller files
        raise
    sync_names(file.parent)  # the new name, too, has to reach the disk
