"""A batch: samples side by side in tensors, which may be nested as the model wants them.

A batch is a tensor whose first dimension counts the samples, or a tuple, list or dict of batches:

    (images, classes)                            what most losses expect
    {"input_ids": ids, "attention_mask": mask}   what a language model from a library expects

These functions treat all of them alike, and numpy arrays too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

Batch = Any  # a tree: Tensor | tuple[Batch, ...] | list[Batch] | dict[str, Batch]


def mapped(function: Callable[[Any], Any], batch: Batch) -> Batch:
    """Return a batch of the same structure, with `function` applied to each tensor."""
    if isinstance(batch, dict):
        return {name: mapped(function, part) for name, part in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(mapped(function, part) for part in batch))
    if isinstance(batch, tuple | list):
        return type(batch)(mapped(function, part) for part in batch)
    return function(batch)


def leaves(batch: Batch) -> Iterator[Any]:
    """Yield a batch's tensors, from left to right."""
    if isinstance(batch, dict):
        batch = list(batch.values())
    if isinstance(batch, tuple | list):
        for part in batch:
            yield from leaves(part)
    else:
        yield batch


def size(batch: Batch) -> int:
    """Return the number of samples."""
    return len(next(leaves(batch)))


def split(batch: Batch, samples: int) -> list[Batch]:
    """Return the batch cut into parts of `samples` each, the last one perhaps smaller; none if it is empty."""
    starts = range(0, size(batch), samples)
    return [mapped(lambda part: part[start : start + samples], batch) for start in starts]  # noqa: B023


def to(device: torch.device, batch: Batch) -> Batch:
    """Return the batch on `device`, numpy arrays as tensors."""
    return mapped(lambda part: (part if isinstance(part, Tensor) else torch.as_tensor(part)).to(device), batch)
