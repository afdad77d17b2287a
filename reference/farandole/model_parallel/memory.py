"""The memory of a rank while it trains: measured, and by formula.

parameters      the values of its part of the model; a stashing stage holds several versions
gradients       as much again
optimizer state SGD none, momentum once, Adam twice the parameters; 1/D of it where D ranks divide it
activations     what autograd keeps from forward to backward: (kept by one micro-batch) × (micro-batches held)

The last is measured where it arises: torch tells of every tensor that it saves for a backward pass,
and lets go of it afterwards. The formulas are in ``footprint``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Memory:
    """Bytes that one rank holds; None where no formula is known."""

    parameters: int
    gradients: int
    optimizer_state: int
    activations: int | None


class ActivationMeter:
    """Counts the memory that waits for a backward pass; each piece of memory once, however often it is saved.

    Attributes:
        active: off, it does not look at what autograd saves.
        most: the largest number of bytes held at once.
        now: the number of bytes held.
    """

    def __init__(self, ignored: Iterable[Tensor]) -> None:
        self.active = True
        self.most = 0
        self.now = 0
        self._holders: Counter[int] = Counter()
        self._ignored: set[int] = set()
        self.ignore(ignored)

    def ignore(self, tensors: Iterable[Tensor]) -> None:
        """Parameters are no activations, though backward passes need them too."""
        self._ignored.update(_address(tensor) for tensor in tensors)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count what autograd saves in the body, until it lets go of it."""
        if not self.active:
            yield
            return
        with torch.autograd.graph.saved_tensors_hooks(self.keep, self.kept):
            yield

    def keep(self, tensor: Tensor) -> object:
        """Return what autograd is to keep in place of `tensor`."""
        return self.hold(tensor)

    def kept(self, instead: Any) -> Tensor:
        """Return the tensor in place of which this was kept."""
        held: Held = instead
        return held.tensor

    def hold(self, tensor: Tensor) -> Held:
        """Count `tensor` for as long as the returned object lives."""
        return Held(self, tensor)

    def is_kept_anyway(self, tensor: Tensor) -> bool:
        """Return whether this is a parameter, or something that is already held."""
        address = _address(tensor)
        return address in self._ignored or self._holders[address] > 0

    def add(self, address: int, nbytes: int, holders: int) -> None:
        """Add `holders`, which may be negative, to the number that hold the memory at `address`."""
        before = self._holders[address]
        self._holders[address] += holders
        if address not in self._ignored and 0 in (before, self._holders[address]):
            self.now += nbytes if holders > 0 else -nbytes
            self.most = max(self.most, self.now)


class Held:
    """One hold on a tensor, for as long as it lives."""

    def __init__(self, meter: ActivationMeter, tensor: Tensor) -> None:
        self.meter, self.tensor = meter, tensor
        meter.add(_address(tensor), tensor.untyped_storage().nbytes(), +1)

    def __del__(self) -> None:
        self.meter.add(_address(self.tensor), self.tensor.untyped_storage().nbytes(), -1)


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
