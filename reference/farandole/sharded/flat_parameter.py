"""A unit's parameters as one vector, of which they are views: what FSDP calls a flat parameter.

A vector is gathered, divided and freed as a whole. The module computes with its own parameters, which lie in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from farandole.errors import UsageError
from farandole.runtime.buffers import KINDS


class FlatParameter:
    """The places of a unit's parameters in one vector.

    Args:
        unit: its name, for messages.
        parameters: at least one, each of which may have any shape.

    Attributes:
        shapes: of the parameters.
        numel: numbers in the vector.

    Raises:
        UsageError: the parameters are of different types, or of one that MPI cannot add.
    """

    def __init__(self, unit: str, parameters: Sequence[nn.Parameter]) -> None:
        first = parameters[0]
        for each in parameters:
            if each.dtype != first.dtype or each.dtype not in KINDS:
                raise UsageError(
                    f"unit {unit} has parameters of {each.dtype} and {first.dtype}: the parameters of a unit must "
                    "all be float32, float64 or float16, or be frozen (requires_grad=False)"
                )
        self.parameters = parameters
        self.device, self.dtype = first.device, first.dtype
        self.shapes = [each.shape for each in parameters]
        self._numels = [each.numel() for each in parameters]
        self.numel = sum(self._numels)

    def flattened(self) -> Tensor:
        """Return a copy of all parameters, shape (numel,)."""
        return torch.cat([each.data.reshape(-1) for each in self.parameters])

    def show(self, vector: Tensor) -> None:
        """Make the parameters views of `vector`, shape (numel,)."""
        for each, part in zip(self.parameters, self._parts(vector), strict=True):
            each.data = part

    def hide(self) -> None:
        """Leave the parameters without numbers, so that their memory is freed with the last reference to the vector."""
        for each in self.parameters:
            each.data = each.data.new_empty(0)

    def show_gradient(self, vector: Tensor) -> None:
        """Make the parameters' gradients views of `vector`: autograd adds to them in place."""
        for each, part in zip(self.parameters, self._parts(vector), strict=True):
            each.grad = part

    def collect_gradient(self, vector: Tensor) -> None:
        """Copy into `vector` what does not lie in it: a gradient that autograd or its user has replaced."""
        for each, part in zip(self.parameters, self._parts(vector), strict=True):
            if each.grad is not None and each.grad.data_ptr() != part.data_ptr():
                part.copy_(each.grad.to_dense())

    def hide_gradient(self) -> None:
        """Leave the parameters without gradients."""
        for each in self.parameters:
            each.grad = None

    def _parts(self, vector: Tensor) -> list[Tensor]:
        return [part.view(shape) for part, shape in zip(vector.split(self._numels), self.shapes, strict=True)]


def as_numpy(vector: Tensor) -> NDArray[Any]:
    """Return the same memory for messages. Numpy has no bfloat16; its numbers are sent as integers of 16 bits."""
    return (vector.view(torch.int16) if vector.dtype == torch.bfloat16 else vector).numpy()
