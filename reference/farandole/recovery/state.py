"""All that decides how a training goes on, as plain tensors and numbers.

A training that is restored from it at a step goes on bitwise as if it had never stopped. That takes
more than the parameters: the optimizer's memory, the state of every random generator, the position
in the data, the loss scale, and whatever else the next step depends on.

Some of it is the same on all ranks and need be kept once (`shared`), some is each rank's own (`own`).
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
    """Whether a value read from JSON has the type of `wanted`, and so has all that is in that."""
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(
            name in found and _is_like(found[name], value) for name, value in wanted.items()
        )
    numbers = (int, float)
    return isinstance(found, numbers if isinstance(wanted, numbers) else type(wanted))


def copied(tensors: Mapping[str, Tensor], memory: Mapping[str, Tensor], device: str | None = None) -> dict[str, Tensor]:
    """Contiguous copies, in the memory of earlier ones where they are as large: new memory is slow when first touched.

    Args:
        memory: the earlier copies, which nobody needs any more.
        device: where they go; None: where the originals are.
    """
    copies = {}
    for name, tensor in tensors.items():
        kept = memory.get(name)
        if kept is None or kept.shape != tensor.shape or kept.dtype != tensor.dtype:
            kept = torch.empty_like(tensor, device=device, memory_format=torch.contiguous_format)
        copies[name] = kept.copy_(tensor)
    return copies
