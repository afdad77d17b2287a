"""A copy of tensors in the form of the file that is to hold them: writing it copies nothing more.

A file of safetensors is a header, and then the numbers of all tensors. The library lays out the first snapshot. As long
as names, shapes and types stay as they are, later ones are copied into its memory: new memory is slow at first.
Cost: the tensors' bytes, once in memory, and read and written once for each snapshot.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import torch
from safetensors.torch import save
from torch import Tensor

LENGTH = 8  # bytes of the number with which a file begins: the header's length


class Snapshot:
    """Tensors as they were when they were taken.

    Attributes:
        data: the file's bytes.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.data = bytearray()
        self._places: dict[str, Tensor] = {}
        self.take(tensors)

    def take(self, tensors: Mapping[str, Tensor]) -> None:
        """Replace what was taken before, which must not be needed any more."""
        if not self._fits(tensors):
            self.data = bytearray(save({name: each.detach().cpu().contiguous() for name, each in tensors.items()}))
            self._places = _places(self.data, tensors)
            return
        for name, tensor in tensors.items():
            self._places[name].copy_(tensor.detach())

    def _fits(self, tensors: Mapping[str, Tensor]) -> bool:
        return bool(self.data) and {name: (each.shape, each.dtype) for name, each in self._places.items()} == {
            name: (each.shape, each.dtype) for name, each in tensors.items()
        }


def _places(data: bytearray, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return for each tensor one of its shape and type whose memory is its place in the file."""
    numbers = LENGTH + int.from_bytes(data[:LENGTH], "little")
    header = json.loads(data[LENGTH:numbers])
    found = {}
    for name, tensor in tensors.items():
        begin, _ = header[name]["data_offsets"]
        if count := tensor.numel():
            flat = torch.frombuffer(data, dtype=tensor.dtype, count=count, offset=numbers + begin)
        else:
            flat = torch.empty(0, dtype=tensor.dtype)
        found[name] = flat.view(tensor.shape)
    return found
