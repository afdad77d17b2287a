"""A model's parameters as one flat vector, its gradients as another.

An all-reduce wants one long buffer; a model has many tensors. Here the tensors become views of
two flat buffers, so communicating needs no copy: numpy and torch see the same memory.

    flat = FlatBuffers(model)
    loss.backward()                     # fills flat.gradients
    comm_all_reduce(flat.gradients_np)  # the same memory, as numpy
    flat.values.add_(flat.gradients, alpha=-learning_rate)

On a GPU the buffers live on the card, and the numpy view is a copy on the host that `to_host` and
`from_host` keep up to date: an MPI that cannot read GPU memory is given that. It is pinned, which makes
the way there and back faster, unless it lies in memory of the caller's, such as a shared window.
"""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from numpy.typing import NDArray
from torch import nn

WHOLE = slice(None)


class FlatBuffers:
    """Flat views of a module's parameters and gradients; changes the module to use them.

    Args:
        gradients: memory for the gradients that numpy sees; None: memory of their own.

    Attributes:
        values: all parameters, one after the other, shape (number of parameters,).
        gradients: likewise; `backward()` adds into it.
        gradients_np: the gradients as the numpy array that is sent.
        values_np: the parameters as the numpy array that a parameter server's values come into.
    """

    def __init__(self, module: nn.Module, gradients: NDArray[Any] | None = None) -> None:
        parameters = list(module.parameters())
        first = parameters[0] if parameters else torch.empty(0)  # a part of a model may be without parameters
        count = sum(parameter.numel() for parameter in parameters)
        self.values = torch.empty(count, dtype=first.dtype, device=first.device)
        on_host = first.device.type == "cpu"
        shared = None if gradients is None else torch.from_numpy(gradients).zero_()
        self.gradients = shared if shared is not None and on_host else torch.zeros_like(self.values)
        offset = 0
        for parameter in parameters:
            place = slice(offset, offset + parameter.numel())
            view = self.values[place].view_as(parameter)
            view.copy_(parameter.data)
            parameter.data = view
            parameter.grad = self.gradients[place].view_as(parameter)
            offset = place.stop
        pinned = torch.empty(count, dtype=first.dtype, pin_memory=True) if shared is None and not on_host else shared
        self._staged = None if on_host else pinned
        self._staged_values = None if on_host else self.values.cpu().pin_memory()
        self.gradients_np: NDArray[Any] = (self.gradients if self._staged is None else self._staged).numpy()
        self.values_np: NDArray[Any] = (self.values if self._staged_values is None else self._staged_values).numpy()

    def zero_gradients(self) -> None:
        self.gradients.zero_()

    def to_host(self, place: slice = WHOLE) -> None:
        """Bring the gradients, or some of them, to where numpy and MPI can read them (nothing to do on a CPU)."""
        if self._staged is not None:
            self._staged[place].copy_(self.gradients[place])

    def from_host(self, place: slice = WHOLE) -> None:
        """Bring back what communication has left in the numpy view."""
        if self._staged is not None:
            self.gradients[place].copy_(self._staged[place])

    def values_from_host(self) -> None:
        """Bring the parameters in the numpy view to where the module computes."""
        if self._staged_values is not None:
            self.values.copy_(self._staged_values)

    def values_to_host(self) -> None:
        """Bring the parameters to the numpy view."""
        if self._staged_values is not None:
            self._staged_values.copy_(self.values)


def sha256(module: nn.Module) -> str:
    """Digest of all parameters' bytes in order: equal digests mean bitwise equal models."""
    digest = hashlib.sha256()
    for parameter in module.parameters():
        digest.update(parameter.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
