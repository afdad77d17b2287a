"""The state of a training, complete enough for a bitwise equal continuation, as tensors and numbers.

It has more than the parameters: the optimizer's state, the state of every random generator, the position in the data,
the loss scale, and everything else that the next step depends on.

Some of it is the same on all ranks and is saved once (`shared`), some is each rank's own (`own`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor


@dataclass
class TrainingState:
    """A training between two steps.

    Attributes:
        step: the step to take next.
        shared: tensors that are the same on all ranks: parameters, what the optimizer remembers.
        own: tensors of this rank alone: its random generators.
        values: numbers and texts that are the same on all ranks, as JSON can hold them.
    """

    step: int
    shared: dict[str, Tensor]
    own: dict[str, Tensor] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)


def misfit_of(saved: TrainingState, expected: TrainingState, with_own: bool) -> str:
    """Return why `saved` cannot replace `expected` (a missing name, another shape or type); "" if it can.

    Args:
        with_own: whether to compare this rank's own tensors, too.
    """
    pairs = [(saved.shared, expected.shared), *([(saved.own, expected.own)] if with_own else [])]
    for found, wanted in pairs:
        for name, tensor in wanted.items():
            if name not in found:
                return f"it has no {name}"
            if found[name].shape != tensor.shape or found[name].dtype != tensor.dtype:
                its, ours = (f"{list(each.shape)} of {each.dtype}" for each in (found[name], tensor))
                return f"{name}: {its}, not {ours}"
    for name, value in expected.values.items():
        if name not in saved.values:
            return f"it has no {name}"
        if not _is_like(saved.values[name], value):
            return f"{name} is of another type"
    return ""


def _is_like(found: Any, wanted: Any) -> bool:
    """Return whether a value read from JSON has the type of `wanted`, and so do all values within it."""
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(
            name in found and _is_like(found[name], value) for name, value in wanted.items()
        )
    numbers = (int, float)
    return isinstance(found, numbers if isinstance(wanted, numbers) else type(wanted))


def copied(tensors: Mapping[str, Tensor], memory: Mapping[str, Tensor], device: str | None = None) -> dict[str, Tensor]:
    """Return contiguous copies, in the memory of earlier ones of the same size: new memory is slow at first.

    Args:
        memory: earlier copies, which may be overwritten.
        device: of the copies; None: that of the originals.
    """
    copies = {}
    for name, tensor in tensors.items():
        kept = memory.get(name)
        if kept is None or kept.shape != tensor.shape or kept.dtype != tensor.dtype:
            kept = torch.empty_like(tensor, device=device, memory_format=torch.contiguous_format)
        copies[name] = kept.copy_(tensor)
    return copies
