"""Samples in any form: arrays side by side, or a torch data set that yields one at a time.

Every method asks the same of them:

    len(samples)            how many there are
    samples[rows]           some of them, without reading any
    samples.on(device)      a reader: reader[rows] is the batch of these rows, on the device
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import IterableDataset, default_collate

from farandole.data import batch as batches
from farandole.data.batch import Batch
from farandole.data.read_ahead import ReadAhead
from farandole.data.stream import Stream
from farandole.data.workers import checked
from farandole.errors import UsageError

Rows = slice | NDArray[np.intp]


class Reader(Protocol):
    """Samples on a device."""

    def __getitem__(self, rows: NDArray[np.intp]) -> Batch:
        """Return these samples as one batch, in this order."""
        ...


class Samples(Protocol):
    """The samples that a method trains on."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Rows, /) -> Self: ...

    def on(self, device: torch.device) -> Reader: ...


@dataclass(frozen=True)
class InMemory:
    """A reader of tensors that lie on the device as a whole."""

    whole: Batch
    device: torch.device

    def __getitem__(self, rows: NDArray[np.intp]) -> Batch:
        taken = torch.from_numpy(rows).to(self.device)
        return batches.mapped(lambda part: part[taken], self.whole)


def in_memory(arrays: Batch, device: torch.device) -> Reader:
    """Return a reader of arrays, which are copied to the device at once."""
    return InMemory(batches.to(device, arrays), device)


@dataclass(frozen=True)
class Each:
    """A reader that makes every batch anew.

    Args:
        batch_of: rows → their batch, of tensors or arrays.
    """

    batch_of: Callable[[NDArray[np.intp]], Batch]
    device: torch.device

    def __getitem__(self, rows: NDArray[np.intp]) -> Batch:
        return batches.to(self.device, self.batch_of(rows))


@dataclass(frozen=True)
class Arrays:
    """Arrays or tensors side by side, nested as a batch is, that have a row for each sample.

    Args:
        whole: the arrays; those of `numpy.memmap` are read as their rows are used.
        rows: the samples that count, as row numbers; None: all.

    Raises:
        UsageError: there is no array, or their lengths differ.
    """

    whole: Batch
    rows: NDArray[np.intp] | None = None

    def __post_init__(self) -> None:
        parts = list(batches.leaves(self.whole))
        if strange := [type(part).__name__ for part in parts if not hasattr(part, "shape") or not len(part.shape)]:
            raise UsageError(f"samples must be arrays with a row each, and one part is {strange[0]}")
        if len({len(part) for part in parts}) != 1:
            raise UsageError(f"arrays of samples must have the same length, and have {[len(part) for part in parts]}")

    def __len__(self) -> int:
        return batches.size(self.whole) if self.rows is None else len(self.rows)

    def __getitem__(self, rows: Rows) -> Arrays:
        return Arrays(self.whole, np.arange(batches.size(self.whole))[rows] if self.rows is None else self.rows[rows])

    def on(self, device: torch.device) -> Reader:
        return Each(self._batch, device)

    def _batch(self, rows: NDArray[np.intp]) -> Batch:
        numbers = rows if self.rows is None else self.rows[rows]
        return batches.mapped(lambda part: part[numbers], self.whole)


@dataclass(frozen=True)
class OneByOne:
    """A map-style data set of torch: sample `i` is `dataset[i]`.

    Args:
        dataset: has `__len__` and `__getitem__`.
        collate: makes a batch of a list of samples; None: torch's `default_collate`.
        rows: the samples that count, by number; None: all.
        loader: arguments of the DataLoader whose workers read ahead (`workers.checked`); empty: no workers.
    """

    dataset: Any
    collate: Callable[[Sequence[Any]], Batch] | None = None
    rows: NDArray[np.intp] | None = None
    loader: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.dataset) if self.rows is None else len(self.rows)

    def __getitem__(self, rows: Rows) -> OneByOne:
        numbers = np.arange(len(self.dataset)) if self.rows is None else self.rows
        return OneByOne(self.dataset, self.collate, numbers[rows], self.loader)

    def on(self, device: torch.device) -> Reader:
        if self.loader and len(self):
            collate = self.collate or default_collate
            return ReadAhead(self.dataset, collate, self._numbers, self._batch, self.loader, device)
        return Each(self._batch, device)

    def _batch(self, rows: NDArray[np.intp]) -> Batch:
        several = getattr(self.dataset, "__getitems__", None)
        numbers = self._numbers(rows)
        samples = several(numbers) if several else [self.dataset[number] for number in numbers]
        batch = (self.collate or default_collate)(samples)
        return batch if len(rows) else batches.mapped(lambda part: part[:0], batch)

    def _numbers(self, rows: NDArray[np.intp]) -> list[int]:
        """Return the samples' numbers; for no rows one, since a batch of no samples has the structure of any other."""
        numbers = rows if self.rows is None else self.rows[rows]
        found: list[int] = numbers.tolist()
        return found or [0]


def samples_of(
    given: Any,
    collate: Callable[[Sequence[Any]], Batch] | None = None,
    loader: Mapping[str, Any] | None = None,
) -> Samples:
    """Return what a user gives as training or test samples: arrays, a data set of torch, or what is `Samples` already.

    Args:
        collate: makes a batch of a list of a data set's samples.
        loader: arguments of torch's DataLoader for worker processes that read a data set ahead (`read_ahead`).

    Raises:
        UsageError: it is none of these; arguments that are not the user's to give.
    """
    arguments = checked(loader)
    if hasattr(given, "on"):
        return given  # type: ignore[no-any-return]
    if isinstance(given, IterableDataset):
        return Stream(given, collate, arguments)
    if isinstance(given, tuple | list | dict | np.ndarray | torch.Tensor):
        return Arrays(given)
    if hasattr(given, "__len__") and hasattr(given, "__getitem__") and not isinstance(given, str | bytes):
        return OneByOne(given, collate, loader=arguments)
    raise UsageError(
        f"samples must be arrays, a tuple or dict of them, or a Dataset of torch, and are {type(given).__name__}"
    )
