"""Some layers in 16 bits and others in 32 (部分层): keeping layers of a half-precision copy in float32.

Matrix products gain from 16 bits, and their rounding errors average out. A normalisation divides by a deviation that it
computes from squares, and a softmax exponentiates: there few digits, or float16's largest number 65504, can do harm. So
these layers are computed in float32, and their inputs and outputs are converted. torch.autocast does that by operation;
here it is done by module, chosen by kind or by name:

    norms       every LayerNorm, BatchNorm, GroupNorm, InstanceNorm and RMSNorm
    softmax     every Softmax and LogSoftmax that is a module
    2.logits    the module of that name, with all its submodules

The loss is computed in float32 in any case, and gradients are added up over the ranks in float32. A module that shares
a parameter with one of these stays in float32 with it.

Cost: 2 bytes more for each parameter kept, and 2 for its gradient; a conversion at each border. Source: Micikevicius et
al., "Mixed precision training", 2018, section 3.3, and document 001, which has *part* of the layers in half precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from farandole.errors import UsageError

KINDS: dict[str, tuple[type[nn.Module], ...]] = {
    "norms": (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, _NormBase),
    "softmax": (nn.Softmax, nn.LogSoftmax),
}


def keep_in_float32(module: nn.Module, layers: Sequence[str]) -> None:
    """Convert some layers of a 16-bit module to float32, and make every layer convert its inputs to its own type.

    Args:
        layers: names of kinds, or of submodules.

    Raises:
        UsageError: there is no submodule of that name.
    """
    names = dict(module.named_modules())
    kept: set[nn.Module] = set()
    for layer in layers:
        if layer in KINDS:
            kept |= {each for each in names.values() if isinstance(each, KINDS[layer])}
        elif layer and layer in names:
            kept |= set(names[layer].modules())
        else:
            known = ", ".join([*KINDS, *(name for name in names if name)])
            raise UsageError(f"--float32-layers {layer}: there is no such layer; choose from {known}")
    while tied := {each for each in names.values() if each not in kept and _own(each) & _own(*kept)}:
        kept |= tied
    for each in kept:
        each.to(torch.float32)
    for each in names.values():
        own = [parameter for parameter in each.parameters(recurse=False) if parameter.is_floating_point()]
        if own or (each in kept and not list(each.children())):
            each.register_forward_pre_hook(_convert, with_kwargs=True)


def _own(*modules: nn.Module) -> set[nn.Parameter]:
    return {parameter for each in modules for parameter in each.parameters(recurse=False)}


def _convert(
    module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return a module's inputs in the type of its own parameters; float32 where it has none."""
    kind = next((each.dtype for each in module.parameters(recurse=False) if each.is_floating_point()), torch.float32)

    def converted(each: Any) -> Any:
        return each.to(kind) if isinstance(each, Tensor) and each.is_floating_point() else each

    return tuple(converted(each) for each in inputs), {name: converted(each) for name, each in named.items()}
