"""A model that computes in bfloat16, while its trained parameters are kept in their own type elsewhere (`unit`).

Inputs are cast where they enter the model and outputs where they leave it, so that the loss is computed in float32.
Unlike autocast, which keeps the parameters whole in float32 and casts at each use, this halves what is gathered.
bfloat16 has the range of float32, so the loss needs no scaling.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from farandole.errors import UsageError


def compute_in_bfloat16(model: nn.Module) -> list[Any]:
    """Have `model` compute in bfloat16, with frozen parameters, too; return what ends that, each by `remove`.

    Raises:
        UsageError: `check_buffers` refuses.
    """
    check_buffers(model)
    frozen = [Frozen(each) for each in model.parameters() if not each.requires_grad]
    return [
        *frozen,
        model.register_forward_pre_hook(_enter, with_kwargs=True),
        model.register_forward_hook(lambda _module, _inputs, outputs: tree_map(_cast(torch.float32), outputs)),
    ]


def check_buffers(model: nn.Module) -> None:
    """Refuse buffers of real numbers, as BatchNorm's, which would lose the small changes in bfloat16.

    Raises:
        UsageError: naming one.
    """
    for name, buffer in model.named_buffers():
        if buffer.is_floating_point():
            raise UsageError(f"--precision bfloat16: {name} must stay in float32, and cannot: use --precision float32")


class Frozen:
    """A frozen parameter in bfloat16, until `remove` gives it its own values again."""

    def __init__(self, parameter: nn.Parameter) -> None:
        self.parameter, self._own = parameter, parameter.data
        parameter.data = parameter.data.to(torch.bfloat16)

    def remove(self) -> None:
        self.parameter.data = self._own


def _enter(_module: nn.Module, inputs: Any, named: Any) -> Any:
    return tree_map(_cast(torch.bfloat16), inputs), tree_map(_cast(torch.bfloat16), named)


def _cast(to: torch.dtype) -> Any:
    return lambda each: each.to(to) if isinstance(each, Tensor) and each.is_floating_point() else each
