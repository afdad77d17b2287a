"""When a unit is gathered, freed and reduced: hooks around the modules of a model, in the order of its passes.

Autograd would keep each unit's whole vector from forward to backward, since a layer's backward needs its weights. What
autograd saves of it is therefore replaced by its place in the unit, and looked up when backward asks for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor, nn

from farandole.sharded.unit import Unit


class Hooks:
    """The hooks of a model's units, from now until `remove`.

    Args:
        stage: of ZeRO, 1 to 3.
        passes_overlap: a unit's next backward pass may begin before the others have ended theirs, as in a pipeline;
            otherwise `Unit.expect_another` is called before each pass.
    """

    def __init__(self, units: Sequence[Unit], stage: int, passes_overlap: bool = False) -> None:
        self.units, self.stage, self.passes_overlap = units, stage, passes_overlap
        self._handles = [handle for unit in units for handle in self._hooked(unit)]

    def remove(self) -> None:
        """Let the model be an ordinary one again."""
        for handle in self._handles:
            handle.remove()

    def packed(self, tensor: Tensor) -> Tensor | Place:
        """Return what autograd is to keep of `tensor`: its place, where it lies in a unit that will be freed."""
        if self.stage == 3:
            start = tensor.untyped_storage().data_ptr()
            for unit in self.units:
                if unit.whole is not None and unit.whole.untyped_storage().data_ptr() == start:
                    return Place(unit, tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()))
        return tensor

    def _hooked(self, unit: Unit) -> list[Any]:
        """Have `unit` gathered, freed and reduced when its time comes; return the hooks' handles."""
        handles: list[Any] = []
        if unit.module is not None and self.stage == 3:
            handles.append(unit.module.register_forward_pre_hook(lambda *_: unit.gather()))
        if unit.module is not None and self.stage > 1:
            handles.append(unit.module.register_forward_hook(partial(self._after_forward, unit)))
            ready = partial(self._gradient_is_there, unit)
            handles += [each.register_post_accumulate_grad_hook(ready) for each in unit.parameters]
        return handles

    def _after_forward(self, unit: Unit, _module: nn.Module, _inputs: Any, outputs: Any) -> None:
        for each in _tensors(outputs):
            if each.requires_grad:
                each.register_hook(lambda _: unit.expect_gradients())
        if self.stage == 3:
            unit.free()

    def _gradient_is_there(self, unit: Unit, _: Tensor) -> None:
        unit.missing -= 1
        if not unit.missing:
            unit.reduce()
            if self.passes_overlap:
                unit.expect_another()


@dataclass(frozen=True)
class Place:
    """Where a tensor that autograd has saved lies in a unit's whole vector."""

    unit: Unit
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    def tensor(self) -> Tensor:
        """Return what lies there; the unit is gathered for it if it is not."""
        self.unit.gather()
        assert self.unit.whole is not None
        return self.unit.whole.as_strided(self.shape, self.stride, self.offset)


def unpacked(saved: Tensor | Place) -> Tensor:
    """Return the tensor that `Hooks.packed` was given."""
    return saved.tensor() if isinstance(saved, Place) else saved


def _tensors(outputs: Any) -> list[Tensor]:
    """Return the tensors in what a module has returned: one, or a tuple, list, dict or object with a dict's methods."""
    if isinstance(outputs, Tensor):
        return [outputs]
    if isinstance(outputs, list | tuple):
        return [each for part in outputs for each in _tensors(part)]
    if isinstance(outputs, dict):
        return [each for part in outputs.values() for each in _tensors(part)]
    return []
