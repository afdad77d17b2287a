"""Activation recomputation: parts of a transformer keep only their inputs, and are computed again in the backward pass.

    what         region                                       no longer kept           computed again
    selective    the core of attention (`core_attention`)     the softmax, a·s         4·s·h operations per position
    full         each block                                   all but its inputs, h    24·h² + 4·s·h

per position and block of width h, with a heads and sequences of s. A region's forward pass runs without autograd. When
the backward pass comes to it, it runs again from the same inputs, parameters and random numbers, now with autograd, and
its backward pass follows at once; so one region's activations are held at a time. The result is the same to the bit.

Collectives in a region are repeated: with tensor parallelism a fully recomputed block sums up twice more, 6 times
instead of 4. The core of attention has none. Sources: Chen et al., "Training deep nets with sublinear memory cost",
2016; Korthikanti et al., "Reducing activation recomputation in large transformer models", 2022, section 5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.func import functional_call

from farandole.models.core_attention import CoreAttention
from farandole.models.recomputation_options import Recomputed
from farandole.models.transformer import Block
from farandole.runtime.devices import random_state, set_random_state

REGIONS = {"selective": CoreAttention, "full": Block}

Watching = Callable[[], AbstractContextManager[object]]


def recompute(model: nn.Module, what: Recomputed, watching: Watching = nullcontext) -> None:
    """Make `model` compute its regions again in the backward pass. Modules, parameters and hooks stay the same objects.

    Args:
        what: a key of `REGIONS`; any other leaves the model as it is.
        watching: the context in which a region is computed again, for instance one that counts what autograd keeps.
    """
    if region := REGIONS.get(what):
        for module in model.modules():
            if isinstance(module, region):
                module.forward = _recomputing(module, watching)


def unfuse(model: nn.Module) -> None:
    """Make attention keep its softmax, a square of positions for each head, instead of using the fused kernel."""
    for module in model.modules():
        if isinstance(module, CoreAttention):
            module.fused = False


def _recomputing(module: nn.Module, watching: Watching) -> Callable[..., Tensor]:
    region = _Region(module)

    def forward(*inputs: Tensor) -> Tensor:
        named = dict(region.named_parameters())
        outputs: Tensor = _Recompute.apply(region, watching, list(named), *inputs, *named.values())  # type: ignore[no-untyped-call]
        return outputs

    return forward


class _Region(nn.Module):
    """A module's computation without the hooks of its calls: a unit of ZeRO is gathered around both passes anyway."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module, self.compute = module, module.forward

    def forward(self, *inputs: Tensor) -> Tensor:
        outputs: Tensor = self.compute(*inputs)
        return outputs


class _Recompute(Function):
    """A region whose parameters are inputs, so that backward uses those of the forward pass, even after an update."""

    @staticmethod
    def forward(ctx: Any, region: _Region, watching: Watching, names: Sequence[str], *tensors: Tensor) -> Tensor:
        ctx.region, ctx.watching, ctx.names = region, watching, names
        before = random_state(tensors[0].device)
        outputs: Tensor = region(*tensors[: len(tensors) - len(names)])
        ctx.random_state = None if torch.equal(before, random_state(tensors[0].device)) else before
        ctx.save_for_backward(*tensors)
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        wanted = ctx.needs_input_grad[3:]
        leaves = [each.detach().requires_grad_(its) for each, its in zip(ctx.saved_tensors, wanted, strict=True)]
        inputs, parameters = leaves[: len(leaves) - len(ctx.names)], leaves[len(leaves) - len(ctx.names) :]
        with torch.enable_grad(), ctx.watching(), drawing_from(ctx.random_state, gradient.device):
            outputs = functional_call(ctx.region, dict(zip(ctx.names, parameters, strict=True)), tuple(inputs))
        found = iter(
            torch.autograd.grad(outputs, [each for each in leaves if each.requires_grad], gradient, allow_unused=True)
        )
        return None, None, None, *(next(found) if its else None for its in wanted)


@contextmanager
def drawing_from(state: Tensor | None, device: torch.device) -> Iterator[None]:
    """In the body, random numbers are drawn as from `state`, afterwards as before; None: the body draws none."""
    if state is None:
        yield
        return
    before = random_state(device)
    set_random_state(state, device)
    try:
        yield
    finally:
        set_random_state(before, device)
