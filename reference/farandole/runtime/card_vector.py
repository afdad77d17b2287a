"""A vector in a card's memory, which a CUDA-aware MPI reads and writes there.

It has as much of a numpy array as the executor of schedules uses, so that a schedule runs on it as on an array. MPI
obtains the memory by DLPack, which mpi4py understands. A card's kernels run on after the call that started them, and
MPI does not know their streams. So `__dlpack__`, the only way to the memory, waits first: until the kernels have
written what is sent, and have read what is then overwritten. When MPI reports that a message has arrived, every kernel
that is started afterwards finds it. Sources: the array API standard, "Data interchange mechanisms"; mpi4py's
documentation, "GPU-aware MPI".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from farandole.runtime import devices


class CardVector:
    """A contiguous vector on a card.

    Args:
        tensor: with one dimension; the memory is shared.

    Raises:
        ValueError: it is not one contiguous vector.
    """

    def __init__(self, tensor: Tensor) -> None:
        if tensor.dim() != 1 or not tensor.is_contiguous():
            raise ValueError(f"one contiguous vector is needed, not shape {tuple(tensor.shape)}")
        self.tensor = tensor.detach()

    def __dlpack__(self, **wanted: Any) -> Any:
        torch.accelerator.set_device_index(self.tensor.device)  # a new thread has the first card, and MPI uses this one
        devices.finish(self.tensor.device)
        return self.tensor.__dlpack__(**wanted)

    def __dlpack_device__(self) -> Any:
        return self.tensor.__dlpack_device__()

    def __len__(self) -> int:
        return len(self.tensor)

    def __getitem__(self, part: slice) -> CardVector:
        return CardVector(self.tensor[part])

    def __setitem__(self, part: slice, values: CardVector) -> None:
        self.tensor[part].copy_(values.tensor)

    def __imul__(self, factor: float) -> CardVector:
        self.tensor.mul_(factor)
        return self

    @property
    def nbytes(self) -> int:
        return self.tensor.nbytes

    @property
    def dtype(self) -> np.dtype[Any]:
        """Return the type as numpy names it."""
        return np.dtype(str(self.tensor.dtype).removeprefix("torch."))

    def add(self, other: CardVector) -> None:
        """Add a vector of the same length, in place."""
        self.tensor.add_(other.tensor)

    def copy(self) -> CardVector:
        return CardVector(self.tensor.clone())

    def room(self, length: int) -> CardVector:
        """Return another vector of this type on the same card, with any values."""
        return CardVector(self.tensor.new_empty(length))

    def joined(self, parts: Sequence[slice]) -> CardVector:
        """Return a copy of these parts, one after the other."""
        return CardVector(torch.cat([self.tensor[part] for part in parts]))

    def as_words(self) -> CardVector:
        """Return the same memory of float16, which MPI does not know, as integers of 16 bits."""
        return CardVector(self.tensor.view(torch.int16))
